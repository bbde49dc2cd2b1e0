//! Files over MCP, read-only: list, read, find and search below one directory.

gavel_mcp_base::program!(gavel_mcp_files);
