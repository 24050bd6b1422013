"""What several roles speak in: attributes, wishes, citations, what is worth writing first."""
