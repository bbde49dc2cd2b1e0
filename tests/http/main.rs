//! The edge on a real port, in front of scripted ports: the behavior of every route towards clients.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, missing_docs, unreachable_pub)]

mod auth;
mod chat;
mod connection;
mod exports;
mod fakes;
mod foreign;
mod harness;
mod misuse;
mod pages;
mod records;
mod stream;
