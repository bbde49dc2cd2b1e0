//! Plain data and its state machines. No I/O, no wall clock, and no randomness except for new ids. One stopwatch: a
//! check by a schema from outside gavel has a time limit (`schema`).

pub use gavel_reading::nesting;

pub mod action;
pub mod address;
pub mod agent_run;
pub mod argument_path;
pub mod budget;
pub mod canonical;
pub mod decision;
pub mod definition;
pub mod error_class;
pub mod evidence;
pub mod family;
pub mod histogram;
pub mod hypertext;
pub mod ids;
pub mod journal;
pub mod known;
pub mod model_schema;
pub mod names;
pub mod object;
pub mod plan;
pub mod planning_session;
pub mod policy;
pub mod prices;
pub mod proportion;
pub mod reflection;
pub mod repository;
pub mod schema;
pub mod settings;
pub mod surrogates;
pub mod templates;
pub mod text;
pub mod thread;
pub mod time;
pub mod times;
pub mod tool;
pub mod tool_settings;
pub mod warnings;
