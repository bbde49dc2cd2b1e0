//! GitHub over MCP: repositories, files, pull requests and issues, each change at most once.

gavel_mcp_base::program!(gavel_mcp_github);
