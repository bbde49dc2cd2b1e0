//! What a server says of its own tool, together with what `mcp.json` says of it.

use super::ToolSettings;
use crate::domain::tool::ApprovalDefault;

impl ToolSettings {
    /// Both together. What restricts a call holds, whether the file or the server says it. What permits something is
    /// said by `mcp.json`, or by a server whose hints are trusted where `mcp.json` is silent.
    #[must_use]
    pub fn with(self, said: Self, is_trusted: bool) -> Self {
        let permitted = if is_trusted { said.clone() } else { Self::default() };
        Self {
            side_effect: strictest(true, self.side_effect, said.side_effect, is_trusted),
            approval: strictest(ApprovalDefault::Required, self.approval, said.approval, is_trusted),
            timeout: self.timeout.or(permitted.timeout),
            idempotency: self.idempotency.or(permitted.idempotency),
            hidden: united(self.hidden, said.hidden),
            // Alone, an untrusted server could name some and keep silent about others.
            recipients: match self.recipients.is_empty() {
                true => permitted.recipients,
                false => united(self.recipients, said.recipients),
            },
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
            repositories: strictest(true, self.repositories, said.repositories, is_trusted),
            preflight: self.preflight.or(permitted.preflight),
        }
    }
}

/// The value that restricts, whether the file or the server says it; else that of the file, or of a server that is
/// trusted.
fn strictest<T: PartialEq>(restricts: T, own: Option<T>, said: Option<T>, is_trusted: bool) -> Option<T> {
    match said.as_ref() == Some(&restricts) {
        true => said,
        false => own.or(said.filter(|_| is_trusted)),
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
