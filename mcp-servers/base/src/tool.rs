//! A tool: how it is described, what arguments it takes, and what carries it out, as one value.
//!
//! The arguments of a tool are a struct, and so is its answer. Their fields are described where they are declared: the
//! listed schemas, the check of what a client sends, and the reading of it follow from them ([`crate::schema`]).

use std::borrow::Cow;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use rmcp::model::{CallToolResult, ContentBlock, JsonObject, MetaObject, ToolAnnotations};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::answer::{Answer, Output};
use crate::input::{self, Unknown};
use crate::{Class, Meta, ToolError, digest, schema};

/// What a tool does to what it acts on, for its annotations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Changes nothing.
    Reads,
    /// Adds something; an equal call adds another.
    Creates,
    /// Changes something; an equal call changes nothing more.
    Updates,
    /// Takes something away; an equal call takes nothing more.
    Removes,
    /// Has an effect that cannot be undone; an equal call has another.
    Acts,
}

/// One call.
#[derive(Debug)]
pub struct Call<A> {
    /// The arguments, which are valid by their schema.
    pub arguments: A,
    /// What the client says beside them.
    pub meta: Meta,
    /// The same for the same arguments.
    pub digest: String,
    /// Cancelled when the caller does not wait any more.
    pub dropped: CancellationToken,
}

/// Why a call has no successful answer.
#[derive(Debug)]
pub enum Fault {
    /// Nothing was done.
    Refused(ToolError),
    /// Unknown whether it was done; the text gives the reason. The answer is a protocol error, since an error in band
    /// means that nothing was done.
    Unsettled(String),
}

impl From<ToolError> for Fault {
    fn from(error: ToolError) -> Self {
        Self::Refused(error)
    }
}

type Answering = Pin<Box<dyn Future<Output = Result<Answer, Fault>> + Send>>;
type Run<S> = Box<dyn Fn(Arc<S>, Call<JsonObject>) -> Answering + Send + Sync>;

/// A tool of the service `S`.
pub struct Tool<S> {
    listed: rmcp::model::Tool,
    /// The property of an answer that is its whole text.
    text: Option<&'static str>,
    unknown: Unknown,
    /// The class of an error about the arguments.
    class: Option<Class>,
    run: Run<S>,
}

impl<S> fmt::Debug for Tool<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tool").field(&self.listed.name).finish()
    }
}

impl<S: Send + Sync + 'static> Tool<S> {
    /// A tool with the arguments `A` and the answer `R`. One that has an effect supports idempotency keys.
    pub fn new<A, R, F>(
        name: &'static str,
        title: &str,
        description: impl Into<Cow<'static, str>>,
        kind: Kind,
        run: impl Fn(Arc<S>, Call<A>) -> F + Send + Sync + 'static,
    ) -> Self
    where
        A: DeserializeOwned + JsonSchema,
        R: Output,
        F: Future<Output = Result<R, Fault>> + Send + 'static,
    {
        let annotations = ToolAnnotations::with_title(title)
            .read_only(kind == Kind::Reads)
            .destructive(matches!(kind, Kind::Removes | Kind::Acts))
            .idempotent(matches!(kind, Kind::Reads | Kind::Updates | Kind::Removes))
            .open_world(false);
        let mut listed = rmcp::model::Tool::new(name, description, schema::input::<A>())
            .with_title(title)
            .with_raw_output_schema(Arc::new(schema::output::<R::Body>()))
            .with_annotations(annotations);
        if kind != Kind::Reads {
            let meta = listed.meta.get_or_insert_default();
            meta.insert("gavel/idempotency".to_owned(), "key".into());
        }
        let run: Run<S> = Box::new(move |service, call| {
            let arguments = input::parse(call.arguments);
            let Call {
                meta, digest, dropped, ..
            } = call;
            let call = arguments.map(|arguments| Call {
                arguments,
                meta,
                digest,
                dropped,
            });
            match call.map(|call| run(service, call)) {
                Ok(running) => Box::pin(async { running.await.map(Output::into_answer) }),
                Err(error) => Box::pin(std::future::ready(Err(error.into()))),
            }
        });
        Self {
            listed,
            text: None,
            unknown: input::unknown,
            class: None,
            run,
        }
    }

    /// It reaches systems outside the server's own data, if `reaches`.
    #[must_use]
    pub fn open_world(mut self, reaches: bool) -> Self {
        self.listed.annotations = self.listed.annotations.map(|hints| hints.open_world(reaches));
        self
    }

    /// The text of an answer is this property of it alone. Otherwise, and for an error, it is JSON.
    #[must_use]
    pub fn with_text(mut self, property: &'static str) -> Self {
        self.text = Some(property);
        self
    }

    /// What it says of itself for gavel, by the keys of `tools.NAME` in `mcp.json`. Objects add to what it says.
    #[must_use]
    pub fn with_settings(mut self, settings: Value) -> Self {
        let meta = self.listed.meta.get_or_insert_default();
        let said = meta.0.entry("gavel/settings").or_insert_with(|| json!({}));
        for (key, value) in settings.as_object().into_iter().flatten() {
            match (said[key].as_object_mut(), value.as_object()) {
                (Some(said), Some(value)) => said.extend(value.clone()),
                _ => said[key] = value.clone(),
            }
        }
        self
    }

    /// Adds to the schema of an argument what depends on the operator's settings.
    #[must_use]
    pub fn with_argument(mut self, name: &str, schema: Value) -> Self {
        let properties = Arc::make_mut(&mut self.listed.input_schema).get_mut("properties");
        let found = properties.and_then(|properties| properties.get_mut(name)?.as_object_mut());
        if let (Some(found), Value::Object(schema)) = (found, schema) {
            found.extend(schema);
        }
        self
    }

    /// The error for an argument that there is not, in place of `unknown_argument`.
    #[must_use]
    pub fn with_unknown(mut self, unknown: Unknown) -> Self {
        self.unknown = unknown;
        self
    }

    /// An error about the arguments has the class [`Class::Arguments`].
    #[must_use]
    pub fn with_class(mut self) -> Self {
        self.class = Some(Class::Arguments);
        self
    }

    /// The tool as it is listed, without what only the server itself needs of its schema.
    pub fn listed(&self) -> rmcp::model::Tool {
        let mut listed = self.listed.clone();
        schema::hide_own(Arc::make_mut(&mut listed.input_schema));
        listed
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.listed.name
    }

    /// Whether its arguments have this one.
    pub fn has_argument(&self, name: &str) -> bool {
        let properties = self.listed.input_schema.get("properties");
        properties.is_some_and(|properties| properties.get(name).is_some())
    }

    /// Carries out a call.
    pub(crate) async fn carry_out(
        &self,
        service: Arc<S>,
        arguments: Option<JsonObject>,
        meta: JsonObject,
        dropped: CancellationToken,
    ) -> Result<Answer, Fault> {
        let digest = digest(arguments.as_ref());
        let checked = input::check(&self.listed.input_schema, arguments.unwrap_or_default(), self.unknown);
        let call = Call {
            arguments: checked.map_err(|error| match self.class {
                Some(class) => error.class(class),
                None => error,
            })?,
            digest,
            meta: Meta::new(meta),
            dropped,
        };
        (self.run)(service, call).await
    }

    /// An answer as it is sent.
    pub(crate) fn result(&self, answer: Answer) -> CallToolResult {
        let text = self.text.filter(|_| !answer.is_error);
        let text = text.and_then(|property| answer.body[property].as_str().map(str::to_owned));
        let mut meta = MetaObject::new();
        meta.0.extend(answer.meta);
        let mut result = match answer.is_error {
            true => {
                if let Some(class) = answer.body["error"].get(crate::error::CLASS) {
                    meta.insert(crate::meta::ERROR_CLASS.to_owned(), class.clone());
                }
                CallToolResult::structured_error(answer.body)
            }
            false => CallToolResult::structured(answer.body),
        };
        if let Some(text) = text {
            result.content = vec![ContentBlock::text(text)];
        }
        result.meta = (!meta.is_empty()).then_some(meta);
        result
    }
}
