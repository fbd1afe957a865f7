//! The modules of a program, in addition to its main file.
//!
//! Their names are those by which the main file imports them, `./lib.js` or `./lib/dates.js`. A module is found with the
//! extension `.js` or `.ts`, whichever it has, and without an extension.

use rquickjs::loader::{ImportAttributes, Loader, Resolver};
use rquickjs::module::Declared;
use rquickjs::{Ctx, Exception, Module, Result};
use std::collections::BTreeMap;
use std::rc::Rc;

/// The texts of modules by their names.
pub(crate) type Texts = Rc<BTreeMap<String, String>>;

/// Resolves modules and returns their texts.
pub(crate) struct Modules(pub Texts);

/// Returns the name of a module relative to the main file, for an import of `name` by the module `base`; `None` if it is not
/// relative, or leaves the directory.
fn absolute(base: &str, name: &str) -> Option<String> {
    let mut path: Vec<&str> = base.split('/').filter(|part| *part != ".").collect();
    path.pop();
    if !name.starts_with("./") && !name.starts_with("../") {
        return None;
    }
    for part in name.split('/') {
        match part {
            "." => {}
            ".." => drop(path.pop()?),
            part => path.push(part),
        }
    }
    Some(format!("./{}", path.join("/")))
}

impl Resolver for Modules {
    fn resolve<'js>(
        &mut self,
        ctx: &Ctx<'js>,
        base: &str,
        name: &str,
        _: Option<ImportAttributes<'js>>,
    ) -> Result<String> {
        let path = absolute(base, name);
        let found = path.and_then(|path| {
            let stem = path.strip_suffix(".js").or_else(|| path.strip_suffix(".ts"));
            let stem = stem.unwrap_or(&path);
            let candidates = [path.clone(), format!("{stem}.js"), format!("{stem}.ts")];
            candidates.into_iter().find(|candidate| self.0.contains_key(candidate))
        });
        found
            .ok_or_else(|| Exception::throw_reference(ctx, &format!("there is no module {name:?}")))
    }
}

impl Loader for Modules {
    fn load<'js>(
        &mut self,
        ctx: &Ctx<'js>,
        name: &str,
        _: Option<ImportAttributes<'js>>,
    ) -> Result<Module<'js, Declared>> {
        let text = self.0.get(name).cloned().unwrap_or_default();
        Module::declare(ctx.clone(), name, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_relative_to_the_importing_module() {
        let of = |base, name| absolute(base, name);
        assert_eq!(of("f.js", "./lib.js").as_deref(), Some("./lib.js"));
        assert_eq!(of("f.js", "./a/b.js").as_deref(), Some("./a/b.js"));
        assert_eq!(of("./a/b.js", "./c.js").as_deref(), Some("./a/c.js"));
        assert_eq!(of("./a/b.js", "../c.js").as_deref(), Some("./c.js"));
        assert_eq!(of("f.js", "../c.js"), None);
        assert_eq!(of("f.js", "fs"), None);
    }
}
