"""What people and programs read: documents, tables and snippets. Nothing here prints."""
