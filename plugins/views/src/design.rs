//! The design document: its views and their functions.

use crate::meta;
use crate::plain::Plain;
use crate::reduction::Reduce;
use nacre_js::{Error, FunctionId, Functions};
use serde::Deserialize;
use std::collections::BTreeMap;

/// Maximum number of views in a design document: the state stores numbers of views in 16 bits.
const VIEWS_MAX: usize = u16::MAX as usize;

#[derive(Deserialize)]
struct Config {
    #[serde(default)]
    name: String,
    #[serde(default)]
    checked: bool,
    #[serde(default)]
    views: BTreeMap<String, ViewConfig>,
}

#[derive(Deserialize)]
struct ViewConfig {
    map: Option<String>,
    reduce: Option<String>,
}

/// A deployed design document.
pub struct Design {
    pub name: String,
    /// The views in the order of their names. This order determines their numbers in the state.
    pub views: Vec<View>,
    /// The function [`meta::MAKE`], which creates the second argument of map functions.
    pub meta: FunctionId,
}

/// A deployed view.
pub struct View {
    pub name: String,
    pub map: FunctionId,
    /// The map function for execution without the engine, if that is possible.
    pub plain: Option<Plain>,
    pub reduce: Option<Reduce>,
    /// Prefix of the view's B-tree in the state.
    pub prefix: [u8; 3],
}

impl Design {
    /// Parses `config`, and compiles its functions unless that was done before.
    ///
    /// # Errors
    /// A message for the author of the design document.
    pub fn read(config: &str, functions: &mut Functions) -> Result<Design, String> {
        // serde would accept an array in place of a structure, but an array is not a design document.
        if !config.trim_start().starts_with('{') {
            return Err("design document: expected a JSON object".into());
        }
        let config: Config =
            serde_json::from_str(config).map_err(|error| format!("design document: {error}"))?;
        if config.views.len() > VIEWS_MAX {
            return Err(format!("design document: more than {VIEWS_MAX} views"));
        }
        let mut add = |name: &str, text: &str| -> Result<FunctionId, Error> {
            match config.checked {
                true => Ok(functions.add(name, text)),
                false => functions.compile(name, text),
            }
        };
        let mut views = Vec::with_capacity(config.views.len());
        for (number, (name, view)) in config.views.into_iter().enumerate() {
            if name.is_empty() || name.trim() != name {
                return Err(format!(
                    "view {name:?}: a name is not empty, and has no space around it"
                ));
            }
            let text = view.map.ok_or_else(|| format!("view {name:?} has no function map"))?;
            let map =
                add(&name, &text).map_err(|error| format!("map of view {name:?}: {error}"))?;
            let plain = Plain::read(&text);
            let reduce = match view.reduce.as_deref().map(str::trim) {
                None | Some("") => None,
                Some(text) => Some(
                    Reduce::read(text, |text| add(&format!("{name}/reduce"), text))
                        .map_err(|error| format!("reduce of view {name:?}: {error}"))?,
                ),
            };
            let [high, low] = (number as u16).to_be_bytes();
            views.push(View { name, map, plain, reduce, prefix: [b'v', high, low] });
        }
        let meta = add("meta", meta::MAKE).map_err(|error| error.to_string())?;
        Ok(Design { name: config.name, views, meta })
    }
}
