//! Tables of routes.

use crate::{Access, Parameters, Pattern};
use std::collections::BTreeMap;

/// Default maximum size of a request's body, in bytes.
pub const BODY_BYTES_MAX: usize = 32 << 20;

/// Method of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Method {
    /// Reads. HEAD is a separate method: a route for GET does not answer it.
    Get,
    /// Reads, with an answer without a body.
    Head,
    /// Adds a resource, or performs an action.
    Post,
    /// Stores a resource at its path.
    Put,
    /// Changes a part of a resource.
    Patch,
    /// Removes.
    Delete,
    /// Any method, even an unknown one. A route with the specific method takes precedence.
    Any,
}

impl Method {
    /// The methods by their names, in the order in which `Allow` lists them.
    const NAMED: [(&'static str, Method); 6] = [
        ("GET", Method::Get),
        ("HEAD", Method::Head),
        ("POST", Method::Post),
        ("PUT", Method::Put),
        ("PATCH", Method::Patch),
        ("DELETE", Method::Delete),
    ];

    /// Returns the name of the method on the wire; `*` for any method.
    pub fn name(self) -> &'static str {
        let named = Method::NAMED.iter().find(|(_, method)| *method == self);
        named.map_or("*", |(name, _)| name)
    }

    fn takes(self, name: &str) -> bool {
        self == Method::Any || self.name() == name
    }
}

/// An endpoint: one method and one path.
#[derive(Clone, Copy, Debug)]
pub struct Route<H> {
    /// Method.
    pub method: Method,
    /// Pattern of the path, see [`Pattern`].
    pub path: &'static str,
    /// The access that is checked before the handler runs.
    pub access: Access,
    /// Maximum size of the body, in bytes.
    pub body_bytes_max: usize,
    /// Answers the request.
    pub handler: H,
}

impl<H> Route<H> {
    /// Creates a route whose body may have up to [`BODY_BYTES_MAX`] bytes.
    pub const fn new(method: Method, path: &'static str, access: Access, handler: H) -> Route<H> {
        Route { method, path, access, body_bytes_max: BODY_BYTES_MAX, handler }
    }

    /// Sets the maximum size of the body, in bytes.
    #[must_use]
    pub const fn with_body(self, body_bytes_max: usize) -> Route<H>
    where
        H: Copy,
    {
        Route { body_bytes_max, ..self }
    }
}

/// The routes of a port.
pub struct Table<H: 'static> {
    /// The routes, in the order in which they are tried.
    routes: Vec<(Pattern, &'static Route<H>)>,
}

/// A route that answers a request.
#[derive(Debug)]
pub struct Found<'p, H: 'static> {
    /// The route.
    pub route: &'static Route<H>,
    /// Parameters of the path.
    pub parameters: Parameters<'p>,
}

/// Result of looking up a request.
#[derive(Debug)]
pub enum Lookup<'p, H: 'static> {
    /// A route answers the request.
    Found(Found<'p, H>),
    /// Routes have this path, but other methods.
    OtherMethods(Allow),
    /// No route has this path.
    NotFound,
}

/// The methods of a path, as the header `Allow` lists them: `GET, POST`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allow(String);

impl Allow {
    /// Returns the value of the header.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<H> Table<H> {
    /// Creates the table from several lists of routes, such as one per module or service.
    ///
    /// # Panics
    /// If a pattern is malformed, if two routes would answer the same request, or if an access refers to a parameter that the path does
    /// not have. Routes are constants of the program.
    pub fn new(lists: impl IntoIterator<Item = &'static [Route<H>]>) -> Table<H> {
        let mut routes = Vec::new();
        let mut known = BTreeMap::new();
        for route in lists.into_iter().flatten() {
            let pattern = Pattern::new(route.path);
            let (method, path) = (route.method, route.path);
            if let Some(name) = route.access.parameter() {
                assert!(
                    pattern.has(name),
                    "{path} needs a right on {{{name}}}, which it does not name"
                );
            }
            let before = known.insert((method, pattern.shape()), path);
            assert!(before.is_none(), "{} {path} is there twice", method.name());
            routes.push((pattern, route));
        }
        // The sort is stable: routes with the same pattern stay together, with routes for any method last.
        routes.sort_by(|(pattern, route), (other_pattern, other)| {
            pattern.precedence(other_pattern).then(route.method.cmp(&other.method))
        });
        Table { routes }
    }

    /// Looks up a request by its method and the percent-decoded segments of its path.
    pub fn find<'p, S: AsRef<str>>(&self, method: &str, path: &'p [S]) -> Lookup<'p, H> {
        let mut others = Vec::new();
        for (pattern, route) in &self.routes {
            let Some(parameters) = pattern.matches(path) else { continue };
            if route.method.takes(method) {
                return Lookup::Found(Found { route, parameters });
            }
            others.push(route.method);
        }
        if others.is_empty() {
            return Lookup::NotFound;
        }
        let allowed = Method::NAMED.iter().filter(|(_, method)| others.contains(method));
        let allowed: Vec<&str> = allowed.map(|(name, _)| *name).collect();
        Lookup::OtherMethods(Allow(allowed.join(", ")))
    }

    /// Returns the routes ordered by path, for lists of endpoints.
    pub fn routes(&self) -> Vec<&'static Route<H>> {
        let mut routes: Vec<&'static Route<H>> =
            self.routes.iter().map(|(_, route)| *route).collect();
        routes.sort_by_key(|route| (route.path, route.method));
        routes
    }
}
