//! The demo model. It implements the port `Model`, and so do the models of `gavel-testing` by [`misbehaving`].
//!
//! [`Demo`] is a small rule-based stand-in for trying gavel without an API key, for tests and for benchmarks. It is
//! deterministic and stateless: like a real model, it reads the whole conversation each time. [`conversation`] reads
//! the newest message and the answers so far, [`tasks`] chooses the next move, and [`turn`] writes it as a provider
//! would.
//!
//! It calls only functions that it is offered, and knows only the task tools, and in a planning session ([`planning`])
//! two that read a repository. Another tool it calls if the message gives its name and arguments. Its evaluation score
//! says nothing about Gemini.

mod conversation;
mod misbehaving;
mod planning;
mod tasks;
mod turn;

use std::sync::Arc;

use regex::Regex;

use crate::domain::journal::ModelTurn;
use crate::ports::BoxFuture;
use crate::ports::model::{CallMode, Model, ModelEvent, ModelFault, ModelRequest};
use conversation::Conversation;
use turn::Move;

pub use gavel_testing::Misbehaving;
pub use misbehaving::StandIn;

/// The model's name, in `GEMINI_MODEL` and in every reply.
pub const NAME: &str = "demo";

/// The rule-based stand-in.
#[derive(Clone, Copy, Debug, Default)]
pub struct Demo;

impl Model for Demo {
    fn generate<'a>(
        &'a self,
        request: ModelRequest<'a>,
        events: Option<&'a mut (dyn FnMut(ModelEvent<'_>) + Send)>,
    ) -> BoxFuture<'a, Result<ModelTurn, ModelFault>> {
        Box::pin(async move { Ok(turn::make(answer(&request), &request, NAME, events)) })
    }

    fn default_model(&self) -> &str {
        NAME
    }
}

fn answer(request: &ModelRequest<'_>) -> Move {
    let declared = |name: &str| request.functions.declarations.iter().any(|known| known.name == name);
    if let Some(chosen) = planning::next(request, &declared) {
        return chosen;
    }
    let allowed = |name: &str| match request.mode {
        CallMode::Auto => true,
        CallMode::None => false,
        CallMode::Any(names) => names.iter().any(|known| known == name),
    };
    tasks::Turn {
        conversation: Conversation::read(request.contents),
        offered: &|name| declared(name) && allowed(name),
    }
    .next()
}

/// The stand-in with this name, for `gavel eval --model-kind` and tests: the demo model, or one that misbehaves. Models
/// with equal seeds answer equally.
#[must_use]
pub fn by_name(name: &str, seed: u64) -> Option<Arc<dyn Model>> {
    if name == NAME {
        return Some(Arc::new(Demo));
    }
    let model = Misbehaving::named(name, seed)?;
    Some(Arc::new(StandIn(model)))
}

/// Compiles a pattern of this module.
fn pattern(text: &str) -> Regex {
    Regex::new(text).unwrap_or_else(|error| unreachable!("patterns are fixed and used in tests: {error}"))
}
