//! The models of `gavel-testing`, which misbehave on purpose, behind the port `Model`.

use gavel_testing::{Conversation, Fault, Function, Misbehaving};

use super::make;
use crate::domain::decision::Usage;
use crate::domain::journal::{FaultKind, ModelTurn};
use crate::ports::BoxFuture;
use crate::ports::model::{CallMode, Content, Model, ModelEvent, ModelFault, ModelRequest};

/// One of these models.
#[derive(Clone, Copy, Debug)]
pub struct StandIn(pub Misbehaving);

impl Model for StandIn {
    fn generate<'a>(
        &'a self,
        request: ModelRequest<'a>,
        events: Option<&'a mut (dyn FnMut(ModelEvent<'_>) + Send)>,
    ) -> BoxFuture<'a, Result<ModelTurn, ModelFault>> {
        Box::pin(async move {
            match self.0.next(&read(&request)) {
                Ok(chosen) => Ok(make(chosen, &request, self.0.name(), events)),
                Err(fault) => Err(ModelFault {
                    kind: kind(fault),
                    detail: "by chance".to_owned(),
                    usage: Usage::default(),
                    served: Box::default(),
                    said: None,
                }),
            }
        })
    }

    fn default_model(&self) -> &str {
        self.0.name()
    }
}

fn kind(fault: Fault) -> FaultKind {
    match fault {
        Fault::Unavailable => FaultKind::Unavailable,
        Fault::Timeout => FaultKind::Timeout,
        Fault::Malformed => FaultKind::Malformed,
        Fault::Blocked => FaultKind::Blocked,
    }
}

fn read<'a>(request: &ModelRequest<'a>) -> Conversation<'a> {
    let newest = super::Conversation::read(request.contents);
    let mut texts = Vec::new();
    for content in request.contents {
        match content {
            Content::Text(_, text) => texts.push(*text),
            Content::Turn(..) => {}
            Content::Responses(responses) => texts.extend(responses.iter().map(|response| match &response.outcome {
                Ok(data) => data.get(),
                Err(failure) => &*failure.message,
            })),
        }
    }
    let declared = request.functions.declarations.iter();
    let function = declared.map(|function| Function {
        name: &function.name,
        parameters: function.parameters.get(),
    });
    Conversation {
        message: newest.message,
        turns: newest.turns,
        texts,
        functions: function.collect(),
        may_call: *request.mode != CallMode::None,
    }
}
