//! Functions, and the engine that runs them once one of them is needed.

use crate::{Engine, Error, FunctionId, Limits, clock};

/// Texts of functions, which are compiled when the engine is asked for: who never does has none.
pub struct Functions {
    limits: Limits,
    /// Names and sources, in the order of their ids.
    texts: Vec<(String, String)>,
    /// It has the first of them.
    engine: Option<Engine>,
}

impl Functions {
    /// None yet. Their engine is to have these limits.
    pub fn new(limits: Limits) -> Functions {
        Functions { limits, texts: Vec::new(), engine: None }
    }

    /// Adds the text of a function, as [`Engine::compile`] takes it, for later.
    pub fn add(&mut self, name: &str, source: &str) -> FunctionId {
        self.texts.push((name.to_owned(), source.to_owned()));
        FunctionId(self.texts.len() - 1)
    }

    /// Adds the text of a function, and compiles it.
    ///
    /// # Errors
    /// As for [`Functions::engine`]; it is not added then.
    pub fn compile(&mut self, name: &str, source: &str) -> Result<FunctionId, Error> {
        let id = self.add(name, source);
        if let Err(error) = self.engine() {
            self.texts.pop();
            return Err(error);
        }
        Ok(id)
    }

    /// The engine, with all of them compiled.
    ///
    /// # Errors
    /// [`Error::Engine`] when the limits do not hold an empty engine, [`Error::Syntax`] when a text is not that of a function.
    pub fn engine(&mut self) -> Result<&mut Engine, Error> {
        let engine = match &mut self.engine {
            Some(engine) => engine,
            none => none.insert(Engine::new(self.limits)?),
        };
        engine.compile_rest(self.texts.iter().map(|(name, source)| (&**name, &**source)))?;
        Ok(engine)
    }

    /// As [`Engine::set_now`].
    pub fn set_now(&mut self, now_us: u64) {
        clock::set(now_us);
    }

    /// As [`Engine::take_log`].
    pub fn take_log(&mut self) -> Vec<String> {
        self.engine.as_mut().map(Engine::take_log).unwrap_or_default()
    }
}
