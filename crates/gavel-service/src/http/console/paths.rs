//! The paths of the pages that other pages link to.

pub(crate) const CONSOLE: &str = "/console";
pub(crate) const ANSWERED: &str = "/console/answered";
pub(crate) const APPROVALS: &str = "/console/approvals";
pub(crate) const GRANTS: &str = "/console/grants";
pub(crate) const LOG_OUT: &str = "/console/logout";
pub(crate) const LOGIN: &str = "/console/login";
pub(crate) const SESSIONS: &str = "/console/sessions";
pub(crate) const STYLE: &str = "/console/style.css";
pub(crate) const THREADS: &str = "/console/threads";
pub(crate) const ZONE: &str = "/console/zone";
