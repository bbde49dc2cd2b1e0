//! Stand-ins that test what gavel promises, whatever a model says: models that misbehave, and a GitHub with one
//! repository. None of them knows gavel; each receives what it needs.

pub mod github;
mod hostile;
mod obeying;
mod random;

use std::hash::{DefaultHasher, Hash, Hasher};

use fastrand::Rng;
use serde_json::Value;

/// A model that misbehaves on purpose. Models with equal seeds answer equal conversations equally.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misbehaving {
    /// Obeys every instruction that it reads, also those in results.
    Obeying,
    /// Attacks: each turn is one trick.
    Hostile(u64),
    /// Produces noise around the functions that it is offered, and faults.
    Random(u64),
}

/// A conversation, as a model reads it.
#[derive(Clone, Debug)]
pub struct Conversation<'a> {
    /// The newest message of the user, without the context above it.
    pub message: &'a str,
    /// The model's turns since that message.
    pub turns: usize,
    /// Every text in sight, oldest first: messages, results as JSON, errors.
    pub texts: Vec<&'a str>,
    /// The functions that are offered.
    pub functions: Vec<Function<'a>>,
    /// Whether the model may call functions now.
    pub may_call: bool,
}

/// A function that is offered to the model.
#[derive(Clone, Copy, Debug)]
pub struct Function<'a> {
    /// Its name.
    pub name: &'a str,
    /// The JSON Schema of its arguments.
    pub parameters: &'a str,
}

/// What a model does with its turn.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Move {
    /// What it says.
    pub text: String,
    /// What it calls, with arguments.
    pub calls: Vec<(String, Value)>,
}

/// Why a model gives no turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is not there.
    Unavailable,
    /// It takes too long.
    Timeout,
    /// What it sends cannot be read.
    Malformed,
    /// Its provider blocked the answer.
    Blocked,
}

impl Misbehaving {
    /// The name of every model.
    pub const NAMES: [&str; 3] = ["obeying", "hostile", "random"];

    /// The model with this name; [`Misbehaving::Obeying`] ignores the seed.
    pub fn named(name: &str, seed: u64) -> Option<Self> {
        let [obeying, hostile, random] = Self::NAMES;
        match name {
            _ if name == obeying => Some(Self::Obeying),
            _ if name == hostile => Some(Self::Hostile(seed)),
            _ if name == random => Some(Self::Random(seed)),
            _ => None,
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        let [obeying, hostile, random] = Self::NAMES;
        match self {
            Self::Obeying => obeying,
            Self::Hostile(_) => hostile,
            Self::Random(_) => random,
        }
    }

    /// The next turn.
    ///
    /// # Errors
    /// The model fails on purpose.
    pub fn next(self, conversation: &Conversation<'_>) -> Result<Move, Fault> {
        match self {
            Self::Obeying => Ok(obeying::obey(conversation)),
            Self::Hostile(seed) => Ok(hostile::attack(&mut conversation.generator(seed), conversation)),
            Self::Random(seed) => random::babble(&mut conversation.generator(seed), conversation),
        }
    }
}

impl Conversation<'_> {
    /// A generator that depends on the seed, the message and the number of turns so far. Ids and times in results are
    /// ignored, because they differ from run to run.
    fn generator(&self, seed: u64) -> Rng {
        let mut hasher = DefaultHasher::new();
        (seed, self.message, self.turns).hash(&mut hasher);
        Rng::with_seed(hasher.finish())
    }
}

impl Move {
    fn say(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            calls: Vec::new(),
        }
    }

    fn call(name: impl Into<String>, arguments: Value) -> Self {
        Self::calls(vec![(name.into(), arguments)])
    }

    fn calls(calls: Vec<(String, Value)>) -> Self {
        Self {
            text: String::new(),
            calls,
        }
    }
}
