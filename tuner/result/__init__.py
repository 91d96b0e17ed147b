"""What is published: every document as a type, from which its JSON, its JSON Schema and all that is shown come."""
