//! `timer`: timers, which are part of the state.

use crate::abi::nacre::plugin::timer::Host;
use crate::capability::Capability;
use crate::instance::{Data, Refused};
use nacre_state::Timer;
use nacre_types::Vbid;
use wasmtime::Result;

impl Host for Data {
    fn belong(&mut self, vb: Option<u16>) -> Result<()> {
        self.count(Capability::Timer)?;
        self.view.timers_home = vb.map(Vbid);
        Ok(())
    }

    fn set(&mut self, name: String, due_us: u64, payload: Vec<u8>) -> Result<()> {
        self.count(Capability::Timer)?;
        self.view.set_timer(&name, Timer { due_us, payload }).map_err(Refused::trap)
    }

    fn cancel(&mut self, name: String) -> Result<bool> {
        self.count(Capability::Timer)?;
        self.journal.timer(&name);
        self.view.cancel_timer(&name).map_err(Refused::trap)
    }

    fn is_set(&mut self, name: String) -> Result<bool> {
        self.count(Capability::Timer)?;
        self.journal.timer(&name);
        Ok(!self.view.state.timers.homes(&name).is_empty())
    }
}
