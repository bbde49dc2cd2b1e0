//! The form of data in JSON, written once beside the data: closed lists of names ([`names!`]), and records that are
//! stored as they are sent ([`record!`]). The API description is made from it (`api/names.rs`).

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;
use serde_json::value::RawValue;

/// The form of a value in JSON.
pub enum Shape {
    /// A string, with its format and an example.
    Text(Option<&'static str>, Option<&'static str>),
    /// A whole number of this many bits; `true`: not negative.
    Count(u8, bool),
    /// Any number.
    Number,
    /// True or false.
    Bool,
    /// Any value.
    Any,
    /// Any object.
    Object,
    /// One of these strings.
    Names(&'static About, &'static [&'static str]),
    /// An object; `true`: of no other fields.
    Record(&'static About, Vec<Field>, bool),
    /// A list.
    List(Box<Self>),
    /// The same or null.
    Optional(Box<Self>),
}

impl Shape {
    /// The id of something that gavel made.
    pub const UUID: Self = Self::Text(Some("uuid"), None);
}

/// The name of a type in the API description, and the lines of its documentation.
pub struct About(pub &'static str, pub &'static [&'static str]);

/// A field of a record.
pub struct Field {
    /// Its name in JSON.
    pub name: String,
    /// The lines of its documentation.
    pub about: &'static [&'static str],
    /// Whether it is always there.
    pub is_required: bool,
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
    bool => Shape::Bool;
    u32 => Shape::Count(32, true);
    u64 => Shape::Count(64, true);
    i64 => Shape::Count(64, false);
    f64 => Shape::Number;
    str => Shape::Text(None, None);
    String => Shape::Text(None, None);
    Cow<'static, str> => Shape::Text(None, None);
    RawValue => Shape::Any;
    Value => Shape::Any;
}

impl<T: Shaped + ?Sized> Shaped for Box<T> {
    fn shape() -> Shape {
        T::shape()
    }
}

impl<T: Shaped + ?Sized> Shaped for Arc<T> {
    fn shape() -> Shape {
        T::shape()
    }
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

/// `tool_call` as `toolCall`.
#[must_use]
pub fn camel(name: &str) -> String {
    let mut words = name.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |mut camel, word| {
        let mut letters = word.chars();
        camel.extend(letters.next().map(|letter| letter.to_ascii_uppercase()));
        camel + letters.as_str()
    })
}

/// An enum with its names on the wire and in the database.
#[doc(hidden)]
#[macro_export]
macro_rules! __names {
    (
        $(#[doc = $doc:literal])* $(#[derive($($derive:ident),+)])*
        $name:ident { $($(#[$variant_meta:meta])* $variant:ident = $text:tt,)+ }
    ) => {
        $(#[doc = $doc])*
        $(#[derive($($derive),+)])*
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
        )]
        pub enum $name { $($(#[$variant_meta])* #[serde(rename = $text)] $variant,)+ }

        impl $name {
            /// Every value.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// Every value with its name, as files are read.
            pub const NAMES: &'static [(&'static str, Self)] = &[$(($text, Self::$variant),)+];

            /// The names alone.
            pub const WORDS: &'static [&'static str] = &[$($text,)+];

            /// The name on the wire and in the database.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }

            /// Parses a name; `None` if it is not in the list.
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
                $crate::domain::names::Shape::Names(&ABOUT, Self::WORDS)
            }
        }
    };
}
pub use __names as names;

/// A struct that is sent, and often stored in the same form. That form follows from its fields and their serde
/// attributes; `shape` gives it for a field whose type does not.
#[doc(hidden)]
#[macro_export]
macro_rules! __record {
    (
        $(#[doc = $doc:literal])* $(#[serde($($serde:tt)*)])* $(#[derive($($derive:ident),+)])*
        $name:ident as $shown:literal {
            $(
                $(#[doc = $field_doc:literal])* $(#[shape($shape:expr)])? $(#[serde($($field_serde:tt)*)])*
                $field:ident: $type:ty,
            )+
        }
    ) => {
        $(#[doc = $doc])*
        #[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
        $(#[derive($($derive),+)])*
        $(#[serde($($serde)*)])*
        pub struct $name { $($(#[doc = $field_doc])* $(#[serde($($field_serde)*)])* pub $field: $type,)+ }

        impl $crate::domain::names::Shaped for $name {
            fn shape() -> $crate::domain::names::Shape {
                use $crate::domain::names::{About, Field, Shape, Shaped};
                static ABOUT: About = About($shown, &[$($doc),*]);
                let serde = stringify!($($($serde)*)*);
                let field = |name, about, serde_of_field: &str, shape: Shape| {
                    Field::new(serde, name, about, serde_of_field, shape)
                };
                let fields = [$(field(
                    stringify!($field),
                    &[$($field_doc),*],
                    stringify!($($($field_serde)*)*),
                    $crate::domain::names::shape_of!($type $(, $shape)?),
                )),+];
                let fields = fields.into_iter().flatten().collect();
                Shape::Record(&ABOUT, fields, serde.contains("deny_unknown_fields"))
            }
        }
    };
}
pub use __record as record;

#[doc(hidden)]
#[macro_export]
macro_rules! __shape_of {
    ($type:ty) => {
        <$type as Shaped>::shape()
    };
    ($type:ty, $shape:expr) => {
        $shape
    };
}
pub use __shape_of as shape_of;

impl Field {
    /// What a field of a record is in JSON, with the serde attributes of both: a field, those of a record within it, or
    /// nothing. What is read strictly may lack what is optional; what is sent has null.
    pub fn new(record: &str, name: &str, about: &'static [&'static str], field: &str, shape: Shape) -> Vec<Self> {
        match (field, shape) {
            ("skip", _) => Vec::new(),
            ("flatten", Shape::Record(_, fields, _)) => fields,
            ("flatten", Shape::Optional(of)) => {
                let mut fields = Self::new(record, name, about, field, *of);
                fields.iter_mut().for_each(|field| field.is_required = false);
                fields
            }
            (_, shape) => vec![Self::named(record, name, about, field, shape)],
        }
    }

    fn named(record: &str, name: &str, about: &'static [&'static str], field: &str, shape: Shape) -> Self {
        let is_read = record.contains("deny_unknown_fields");
        let may_lack = is_read && (field.contains("default") || matches!(shape, Shape::Optional(_)));
        let renamed = field
            .split_once("rename = \"")
            .and_then(|(_, name)| name.split_once('"'));
        Self {
            name: match renamed {
                Some((name, _)) => name.to_owned(),
                None if record.contains("camelCase") => camel(name),
                None => name.to_owned(),
            },
            about,
            is_required: !may_lack && !field.contains("skip_serializing_if"),
            shape,
        }
    }
}
