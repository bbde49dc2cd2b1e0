//! The paths of the pages that other pages link to.

pub(in crate::http) const CONSOLE: &str = "/console";
pub(in crate::http) const ANSWERED: &str = "/console/answered";
pub(in crate::http) const APPROVALS: &str = "/console/approvals";
pub(in crate::http) const GRANTS: &str = "/console/grants";
pub(in crate::http) const LOG_OUT: &str = "/console/logout";
pub(in crate::http) const LOGIN: &str = "/console/login";
pub(in crate::http) const SESSIONS: &str = "/console/sessions";
pub(in crate::http) const STYLE: &str = "/console/style.css";
pub(in crate::http) const THREADS: &str = "/console/threads";
pub(in crate::http) const ZONE: &str = "/console/zone";
