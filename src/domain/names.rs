//! What data looks like in JSON, told once beside the data: closed lists of names ([`names!`]), and records that are
//! stored as they are sent ([`record!`]). The API description is made from it ([`crate::api::Described`]).

use super::ids::{PlanningSessionId, RunId};

/// The form of a value in JSON.
pub enum Shape {
    /// A string, with its format and an example.
    Text(Option<&'static str>, Option<&'static str>),
    /// A whole number of this many bits, not negative.
    Count(u8),
    /// One of these strings.
    Names(&'static About, Vec<&'static str>),
    /// An object; `true`: of no other fields.
    Record(&'static About, Vec<Field>, bool),
    /// A list.
    List(Box<Self>),
    /// The same or null.
    Optional(Box<Self>),
}

/// The name of a type in the API description, and the lines of its documentation.
pub struct About(pub &'static str, pub &'static [&'static str]);

/// A field of a record.
pub struct Field {
    /// Its name in JSON.
    pub name: String,
    /// The lines of its documentation.
    pub about: &'static [&'static str],
    /// Whether it may be left out.
    pub has_default: bool,
    /// Its value.
    pub shape: Shape,
}

/// A type with a form in JSON.
pub trait Shaped {
    /// The form.
    fn shape() -> Shape;
}

macro_rules! shaped {
    ($($name:ty => $shape:expr;)+) => {
        $(impl Shaped for $name {
            fn shape() -> Shape {
                $shape
            }
        })+
    };
}

shaped! {
    u32 => Shape::Count(32);
    u64 => Shape::Count(64);
    String => Shape::Text(None, None);
    PlanningSessionId => Shape::Text(Some("uuid"), None);
    RunId => Shape::Text(Some("uuid"), None);
    super::plan::TaskId => Shape::Text(None, Some("t1"));
    super::time::Timestamp => Shape::Text(Some("date-time"), None);
}

impl<T: Shaped> Shaped for Vec<T> {
    fn shape() -> Shape {
        Shape::List(Box::new(T::shape()))
    }
}

impl<T: Shaped> Shaped for Option<T> {
    fn shape() -> Shape {
        Shape::Optional(Box::new(T::shape()))
    }
}

/// `snake_case` in camel case.
pub(crate) fn camel(name: &str) -> String {
    let mut words = name.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |camel, word| {
        let (head, rest) = word.split_at(word.len().min(1));
        camel + &head.to_ascii_uppercase() + rest
    })
}

/// An enum with its names on the wire and in the database.
macro_rules! names {
    ($(#[doc = $doc:literal])* $name:ident { $($(#[doc = $variant_doc:literal])* $variant:ident = $text:tt,)+ }) => {
        $(#[doc = $doc])*
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
        )]
        pub enum $name { $($(#[doc = $variant_doc])* #[serde(rename = $text)] $variant,)+ }

        impl $name {
            /// Every value.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The name on the wire and in the database.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }

            /// Parses a name; `None` if it is not in the list.
            #[must_use]
            pub fn parse(text: &str) -> Option<Self> {
                match text { $($text => Some(Self::$variant),)+ _ => None }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl $crate::domain::names::Shaped for $name {
            fn shape() -> $crate::domain::names::Shape {
                static ABOUT: $crate::domain::names::About =
                    $crate::domain::names::About(stringify!($name), &[$($doc),*]);
                $crate::domain::names::Shape::Names(&ABOUT, vec![$($text),+])
            }
        }
    };
}
pub(crate) use names;

/// A struct that is stored as it is sent. Its form in JSON follows from its fields and what serde is told of them.
macro_rules! record {
    (
        $(#[doc = $doc:literal])* $(#[serde($($serde:tt)*)])* $(#[derive($($derive:ident),+)])*
        $name:ident as $shown:literal {
            $($(#[doc = $field_doc:literal])* $(#[serde($($field_serde:tt)*)])* $field:ident: $type:ty,)+
        }
    ) => {
        $(#[doc = $doc])*
        #[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        $(#[derive($($derive),+)])*
        $(#[serde($($serde)*)])*
        pub struct $name { $($(#[doc = $field_doc])* $(#[serde($($field_serde)*)])* pub $field: $type,)+ }

        impl $crate::domain::names::Shaped for $name {
            fn shape() -> $crate::domain::names::Shape {
                use $crate::domain::names::{About, Field, Shape, Shaped, camel};
                static ABOUT: About = About($shown, &[$($doc),*]);
                let serde = stringify!($($($serde)*)*);
                let named = if serde.contains("camelCase") { camel } else { str::to_owned };
                let fields = vec![$(Field {
                    name: named(stringify!($field)),
                    about: &[$($field_doc),*],
                    has_default: stringify!($($($field_serde)*)*).contains("default"),
                    shape: <$type as Shaped>::shape(),
                }),+];
                Shape::Record(&ABOUT, fields, serde.contains("deny_unknown_fields"))
            }
        }
    };
}
pub(crate) use record;
