//! The five classes of errors. Each code of a call, a run and a problem belongs to one, as
//! the list of the codes says.

use super::names::names;

names! {
    /// The class of an error.
    ErrorClass {
        /// The request, or what the model requested, is invalid.
        ValidationError = "ValidationError",
        /// A credential, a consent or a permission is missing.
        AuthError = "AuthError",
        /// A rule, an approver or a limit prevented it.
        PolicyError = "PolicyError",
        /// A tool, its server or the service itself failed.
        ToolExecutionError = "ToolExecutionError",
        /// The model could not be reached, or its answer could not be used.
        ModelError = "ModelError",
    }
}
