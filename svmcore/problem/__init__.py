"""The problem: what users give is checked, becomes a dual problem, and answers to it are measured."""
