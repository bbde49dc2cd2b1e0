//! The public web over MCP: one page as text, and a search; nothing of the private network.

gavel_mcp_base::program!(gavel_mcp_web);
