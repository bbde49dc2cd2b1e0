//! What a server says of its own tool, together with what `mcp.json` says of it.

use super::ToolSettings;
use crate::domain::tool::ApprovalDefault;

impl ToolSettings {
    /// Both together. What restricts a call holds, whether the file or the server says it. What permits something is
    /// said by `mcp.json`, or by a server whose hints are trusted where `mcp.json` is silent.
    #[must_use]
    pub fn with(self, said: Self, is_trusted: bool) -> Self {
        let permitted = if is_trusted { said.clone() } else { Self::default() };
        let (required, acts) = (Some(ApprovalDefault::Required), Some(true));
        Self {
            side_effect: acts
                .filter(|_| said.side_effect == acts)
                .or(self.side_effect)
                .or(permitted.side_effect),
            approval: required
                .filter(|_| said.approval == required)
                .or(self.approval)
                .or(permitted.approval),
            timeout: self.timeout.or(permitted.timeout),
            idempotency: self.idempotency.or(permitted.idempotency),
            hidden: united(self.hidden, said.hidden),
            recipients: united(self.recipients, said.recipients),
            free_arguments: or(self.free_arguments, permitted.free_arguments),
            single_line: united(self.single_line, said.single_line),
            times: self.times.or(said.times),
            scope: match (self.scope, said.scope) {
                (Some(own), said) => Some(united(own, said.unwrap_or_default())),
                (None, said) => said,
            },
            creates: match self.creates.is_empty() {
                true => permitted.creates,
                false => self.creates,
            },
            amounts_to: united(self.amounts_to, said.amounts_to),
            repositories: self.repositories.or(permitted.repositories),
            preflight: self.preflight.or(permitted.preflight),
        }
    }
}

fn united<T: PartialEq>(mut own: Vec<T>, said: Vec<T>) -> Vec<T> {
    for one in said {
        if !own.contains(&one) {
            own.push(one);
        }
    }
    own
}

fn or<T>(own: Vec<T>, said: Vec<T>) -> Vec<T> {
    if own.is_empty() { said } else { own }
}
