//! A task list over MCP: add, list, update, complete and delete a user's own tasks.

gavel_mcp_base::program!(gavel_mcp_tasks);
