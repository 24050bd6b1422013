"""What the planner's second mind is made of: its question, its answer, and what is held against it.

`question` writes the prompt, `answer` is the shape of what comes back, `likeness` finds ideas that
were tried already, `review` turns an answer into ideas and says what is wrong with the others.
`agents.minds.planner` puts them together.
"""
