"""omnigate: fair admission in front of the node's services and of any HTTP service behind it."""
