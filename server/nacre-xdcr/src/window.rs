//! The window of bytes in flight. It grows while the target keeps up and shrinks on trouble.

/// Limits the unanswered bytes; the limit adapts.
///
/// The limit doubles with each answered window until the target first has trouble. From then on it grows by one step
/// per window, and trouble halves it.
#[derive(Clone, Debug)]
pub struct Window {
    least: usize,
    most: usize,
    limit: usize,
    used: usize,
    grows_fast: bool,
    halved_ns: Option<u64>,
}

/// Growth of the limit per window after the first trouble: 64 KiB.
const STEP_BYTES: usize = 64 << 10;
/// Troubles within this time count as one: 100 ms.
const CALM_NS: u64 = 100_000_000;

impl Window {
    /// Creates a window whose limit stays between `least` and `most` bytes.
    pub fn new(least: usize, most: usize) -> Window {
        Window { least, most, limit: least, used: 0, grows_fast: true, halved_ns: None }
    }

    /// Returns true if the window has room for a request of this size. An empty window accepts any size.
    pub fn has_room(&self, bytes: usize) -> bool {
        self.used == 0 || self.used + bytes <= self.limit
    }

    /// Adds the bytes of a request that was sent.
    pub fn send(&mut self, bytes: usize) {
        self.used += bytes;
    }

    /// Removes the bytes of a request that is no longer in flight.
    pub fn free(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.used);
        self.used = self.used.saturating_sub(bytes);
    }

    /// Raises the limit after the target has stored `bytes`.
    pub fn grow(&mut self, bytes: usize) {
        let slow = bytes.min(self.limit) * STEP_BYTES / self.limit.max(1);
        let growth = if self.grows_fast { bytes } else { slow };
        self.limit = (self.limit + growth).min(self.most);
    }

    /// Halves the limit because the target has trouble or does not answer.
    pub fn shrink(&mut self, now_ns: u64) {
        self.grows_fast = false;
        if self.halved_ns.is_none_or(|halved| now_ns >= halved + CALM_NS) {
            self.limit = (self.limit / 2).max(self.least);
            self.halved_ns = Some(now_ns);
        }
    }

    /// Removes all bytes in flight.
    pub fn clear(&mut self) {
        self.used = 0;
    }

    /// Returns the bytes in flight.
    pub fn used(&self) -> usize {
        self.used
    }

    /// Returns the limit of bytes in flight.
    pub fn limit(&self) -> usize {
        self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_grows_with_answers_and_is_halved_by_trouble() {
        let mut window = Window::new(1 << 20, 8 << 20);
        for _ in 0..2 {
            let limit = window.limit();
            window.send(limit);
            assert!(!window.has_room(1));
            window.free(limit);
            window.grow(limit);
            assert_eq!(window.limit(), 2 * limit);
        }
        window.shrink(0);
        window.shrink(1);
        assert_eq!(window.limit(), 2 << 20, "one trouble is not two");
        window.grow(2 << 20);
        assert_eq!(window.limit(), (2 << 20) + STEP_BYTES);
        (1..9).for_each(|times| window.shrink(times * CALM_NS));
        assert_eq!(window.limit(), 1 << 20);
        assert!(window.has_room(64 << 20), "a large document goes alone");
    }
}
