//! Functions in TypeScript and of several files, over REST.

use crate::eventing::wait_for_status;
use crate::eventing::{Collection, ask, collections, command, define, deploy, function, get};
use crate::process::Server;
use serde_json::{Value, json};

const MAIN: &str = "import type { Order } from './order.js';
import { total, type Line } from './order.ts';
export function OnUpdate(doc: Order, meta: { id: string }): void {
    if (doc.lines === undefined) throw new Error('no lines' as string);
    const lines: Line[] = doc.lines!;
    dst[meta.id] = { total: total(lines) };
}
";
const ORDER: &str = "export interface Line { price: number; count?: number }
export type Order = { lines?: Line[] };
export const total = (lines: Line[]): number =>
    lines.reduce<number>((sum: number, line: Line) => sum + line.price * (line.count ?? 1), 0);
";

#[test]
fn a_typescript_function_of_two_files_reports_errors_at_source_positions() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Server::start(directory.path());
    collections(&server, &["meta", "dst"]);
    let mut typed = function("typed", MAIN, "_default", &["dst"]);
    typed["language"] = json!("typescript");
    typed["modules"] = json!({"./order.ts": ORDER});
    deploy(&mut server, &typed);
    let mut source = Collection::open(&server, "_default");
    let mut dst = Collection::open(&server, "dst");
    source.put("a", &json!({"lines": [{"price": 2, "count": 3}, {"price": 1}]}));
    assert_eq!(server.wait_for("the total", |_| dst.get("a")), json!({"total": 7}));
    source.put("b", &json!({}));
    let told = "Error: no lines (line 4, column 44)";
    server.wait_for("the failure", |server| {
        let answer = ask(server, "GET", "/getAppLog?name=typed", &Value::Null).1;
        answer.as_str().is_some_and(|log| log.contains(told)).then_some(())
    });
    // The code is returned as it was written, and imported in that form.
    let mut exported = get(&server, "/api/v1/functions/typed");
    assert_eq!((&exported["appcode"], &exported["language"]), (&json!(MAIN), &json!("typescript")));
    assert_eq!(exported["modules"], json!({"./order.ts": ORDER}));
    command(&server, "typed", "pause");
    wait_for_status(&mut server, "typed", "paused");
    exported["settings"] = json!({});
    define(&server, &exported);
    // Other settings leave the code as it is.
    let path = "/api/v1/functions/typed/settings";
    assert_eq!(ask(&server, "POST", path, &json!({"execution_timeout": 5})).0, 200);
    command(&server, "typed", "resume");
    source.put("c", &json!({"lines": []}));
    assert_eq!(server.wait_for("the next total", |_| dst.get("c")), json!({"total": 0}));
}

#[test]
fn errors_of_typescript_are_reported_with_their_position() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    collections(&server, &["meta"]);
    let refusal = |code: &str, modules: Value| {
        let mut typed = function("typed", code, "_default", &[]);
        typed["language"] = json!("typescript");
        typed["modules"] = modules;
        let (status, answer) = ask(&server, "POST", "/api/v1/functions/typed", &typed);
        assert_ne!(status, 200, "{code}");
        format!("{} {}", answer["name"].as_str().unwrap(), answer["description"].as_str().unwrap())
    };
    let enums = refusal("enum A { B }\nfunction OnUpdate() {}", json!({}));
    assert!(enums.starts_with("ERR_HANDLER_COMPILATION"), "{enums}");
    assert!(enums.contains("an enum") && enums.contains("line 1, column 1"), "{enums}");
    let syntax = refusal("function OnUpdate() {\n  let a: = 1;\n}", json!({}));
    assert!(syntax.contains("line 2, column 10"), "{syntax}");
    let module = json!({"./m.ts": "export const a: number = 1;\nnamespace N { let b = 1 }"});
    let module = refusal("import './m.ts'; export function OnUpdate() {}", module);
    assert!(module.contains("./m.ts: ") && module.contains("line 2, column 1"), "{module}");
    // The rest must be correct apart from its types.
    let left = refusal("function OnUpdate(doc: any) {\n  doc.\n}", json!({}));
    assert!(left.contains("line 3, column 1"), "{left}");
    let name = refusal("function OnUpdate() {}", json!({"../m.ts": ""}));
    assert!(name.starts_with("ERR_INVALID_CONFIG") && name.contains("../m.ts"), "{name}");
    let missing = refusal("import './none.ts'; export function OnUpdate() {}", json!({}));
    assert!(missing.contains("there is no module"), "{missing}");
    // Brackets that never end are no danger for the node.
    let deep = format!("function OnUpdate() {{ return {}1 }}", "(".repeat(200_000));
    assert!(refusal(&deep, json!({})).starts_with("ERR_HANDLER_COMPILATION"));
    assert_eq!(ask(&server, "GET", "/api/v1/functions", &Value::Null).0, 200);
}
