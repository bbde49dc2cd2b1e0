//! Containers over MCP: create one, run scripts in it, read its files; nothing of the host.

gavel_mcp_base::program!(gavel_mcp_docker);
