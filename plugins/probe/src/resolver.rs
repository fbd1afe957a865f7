//! The world `resolver`: the longer body wins, `merge` as a local body joins both, `loop` never ends, `trap` crashes, `large` is
//! merged to more than a document may have.

use nacre_plugin::{Fault, Resolver, Verdict, Version};

struct Longer;

impl Resolver for Longer {
    fn describe() -> String {
        r#"{"name":"longer","version":"0.1.0","limits":{}}"#.into()
    }

    fn init(_: &str) -> Result<Longer, Fault> {
        Ok(Longer)
    }

    fn resolve(&mut self, _: &[u8], local: &Version, remote: &Version) -> Result<Verdict, Fault> {
        match &local.body[..] {
            b"merge" => Ok(Verdict::Merged([&local.body[..], &remote.body].concat())),
            b"loop" => loop {
                std::hint::black_box(());
            },
            b"trap" => panic!("on purpose"),
            b"large" => Ok(Verdict::Merged(vec![b'1'; (20 << 20) + 1])),
            b"refuse" => Err(Fault::Reject("no verdict".into())),
            body if body.len() >= remote.body.len() => Ok(Verdict::KeepLocal),
            _ => Ok(Verdict::KeepRemote),
        }
    }
}

nacre_plugin::export_resolver!(Longer);
