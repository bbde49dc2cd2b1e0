//! Gmail and Google Calendar over MCP: send an e-mail, create an event, each at most once.

gavel_mcp_base::program!(gavel_mcp_google);
