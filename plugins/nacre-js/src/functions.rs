//! Functions, and an engine that is created when one of them is needed.

use crate::{Engine, Error, FunctionId, Limits, clock};

/// Texts of functions, which are compiled when the engine is first used.
pub struct Functions {
    limits: Limits,
    /// Names and sources, in the order of their IDs.
    texts: Vec<(String, String)>,
    /// The engine, in which a prefix of the functions is compiled.
    engine: Option<Engine>,
}

impl Functions {
    /// Creates an empty set of functions, whose engine will have these limits.
    pub fn new(limits: Limits) -> Functions {
        Functions { limits, texts: Vec::new(), engine: None }
    }

    /// Adds the text of a function, as for [`Engine::compile`], without compiling it.
    pub fn add(&mut self, name: &str, source: &str) -> FunctionId {
        self.texts.push((name.to_owned(), source.to_owned()));
        FunctionId(self.texts.len() - 1)
    }

    /// Adds the text of a function and compiles it.
    ///
    /// # Errors
    /// As for [`Functions::engine`]; the function is then not added.
    pub fn compile(&mut self, name: &str, source: &str) -> Result<FunctionId, Error> {
        let id = self.add(name, source);
        if let Err(error) = self.engine() {
            self.texts.pop();
            return Err(error);
        }
        Ok(id)
    }

    /// Returns the engine with all functions compiled.
    ///
    /// # Errors
    /// [`Error::Engine`] if the limits are too small for an empty engine, [`Error::Syntax`] if a text is not a function.
    pub fn engine(&mut self) -> Result<&mut Engine, Error> {
        let engine = match &mut self.engine {
            Some(engine) => engine,
            none => none.insert(Engine::new(self.limits)?),
        };
        engine.compile_rest(self.texts.iter().map(|(name, source)| (&**name, &**source)))?;
        Ok(engine)
    }

    /// Sets the time, as [`Engine::set_now`] does.
    pub fn set_now(&mut self, now_us: u64) {
        clock::set(now_us);
    }

    /// Returns the log, as [`Engine::take_log`] does.
    pub fn take_log(&mut self) -> Vec<String> {
        self.engine.as_mut().map(Engine::take_log).unwrap_or_default()
    }
}
