//! What handlers tell the API description of their parameters and answers.

use utoipa::openapi::path::{Operation, Parameter};
use utoipa::openapi::{Ref, RefOr, Schema};
use utoipa::{IntoParams, ToSchema};

use super::error::Code;
use super::openapi::problems;
use super::route::Route;

/// An operation of the API description.
pub(super) struct About<'a> {
    pub(super) operation: &'a mut Operation,
    /// Schemas that it refers to, by name.
    pub(super) schemas: &'a mut Vec<(String, RefOr<Schema>)>,
    pub(super) route: &'static Route,
}

impl About<'_> {
    pub(super) fn parameters<P: IntoParams>(&mut self) {
        P::into_params(|| None).into_iter().for_each(|one| self.parameter(one));
    }

    pub(super) fn parameter(&mut self, parameter: impl Into<Parameter>) {
        let parameters = self.operation.parameters.get_or_insert_default();
        parameters.push(RefOr::T(parameter.into()));
    }

    pub(super) fn problems(&mut self, codes: &[Code]) {
        problems::add(self.operation, codes);
    }

    pub(super) fn schema<T: ToSchema>(&mut self) -> Ref {
        self.schemas.push((T::name().into_owned(), T::schema()));
        T::schemas(self.schemas);
        Ref::from_schema_name(T::name())
    }
}
