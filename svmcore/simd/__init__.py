"""Vector instructions: what they are, what they mean, and the loops made of them."""
