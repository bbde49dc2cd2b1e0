//! Pages of lists.

/// One page of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    /// The rows.
    pub items: Vec<T>,
    /// For the next page; absent on the last.
    pub next_page_token: Option<String>,
}

impl<T> Page<T> {
    /// The page with each row in another form.
    pub fn map<U>(self, row: impl FnMut(T) -> U) -> Page<U> {
        Page {
            items: self.items.into_iter().map(row).collect(),
            next_page_token: self.next_page_token,
        }
    }
}

/// The answer with a page of a list, under the list's name.
macro_rules! page {
    ($(#[$attribute:meta])+ $name:ident { $items:ident: $item:ty }) => {
        #[derive(Clone, Debug, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
        $(#[$attribute])+
        pub struct $name {
            /// The rows.
            pub $items: Vec<$item>,
            /// Token of the next page; null on the last.
            #[schema(required = true)]
            pub next_page_token: Option<String>,
        }

        impl From<$crate::Page<$item>> for $name {
            fn from(page: $crate::Page<$item>) -> Self {
                Self {
                    $items: page.items,
                    next_page_token: page.next_page_token,
                }
            }
        }

        impl From<$name> for $crate::Page<$item> {
            fn from(page: $name) -> Self {
                Self {
                    items: page.$items,
                    next_page_token: page.next_page_token,
                }
            }
        }
    };
}
pub(crate) use page;
