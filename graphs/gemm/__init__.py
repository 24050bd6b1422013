"""A grid of products: `tuning` judges the candidates of one shape, `runner` shape after shape."""
