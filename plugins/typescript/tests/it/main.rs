//! Texts with types, and what is left of them.

use nacre_typescript::strip;

/// The text without its types; what is left must have its lines and columns.
fn stripped(source: &str) -> String {
    let script = strip(source).unwrap();
    let shape =
        |text: &str| -> Vec<usize> { text.split('\n').map(|line| line.chars().count()).collect() };
    assert_eq!(shape(&script), shape(source));
    let trimmed: Vec<_> = script.lines().map(str::trim_end).collect();
    trimmed.join("\n")
}

#[test]
fn types_become_blanks() {
    insta::assert_snapshot!(stripped(r#"
type Order = { id: string; total?: number };
interface Meta<T> extends Base { id: T }
declare const dst: Record<string, Order>;
declare function log(...parts: unknown[]): void;
declare enum Far { A }
import type { A } from "./a.js";
import { type B, c, type D } from "./b.js";
export type { A };
export type E = A | B;
let ende!: string;
const limit: number = 3, é: Map<string, Array<number>> = new Map<string, Array<number>>();
function OnUpdate(this: void, doc: Order, meta?: Meta<string>, ...rest: string[]): void {
    const total = (doc.total as number) + (<any>doc).x! + meta!.id.length;
    const pair = [1, 2] as const satisfies readonly number[];
    const add = <T extends number>(a: T, b: T = 1 as T): T => (a + b) as T;
    for (const [key, value] of Object.entries<number>(doc as any)) log(key, value);
    try { add<number>(1, 2) } catch (error: unknown) { log((error as Error)?.message!) }
}
function over(a: string): string;
function over(a: number): number;
function over(a: any): any { return a }
"#), @r#"

    ;
    ;
    ;
    ;
    ;
    ;
    import {         c,        } from "./b.js";
    ;
    ;
    let ende         ;
    const limit         = 3, é                             = new Map                       ();
    function OnUpdate(            doc       , meta               , ...rest          )       {
        const total = (doc.total          ) + (     doc).x  + meta .id.length;
        const pair = [1, 2]                                     ;
        const add =                   (a   , b    = 1     )    => (a + b)     ;
        for (const [key, value] of Object.entries        (doc       )) log(key, value);
        try { add        (1, 2) } catch (error         ) { log((error         )?.message ) }
    }
    ;
    ;
    function over(a     )      { return a }
    "#);
}

#[test]
fn classes_keep_their_members() {
    insta::assert_snapshot!(stripped(r#"
abstract class Box<T> extends Base<T> implements One, Two<T> {
    private readonly value: T;
    public static count?: number = 0;
    protected late!: string;
    declare ghost: number;
    [key: string]: unknown;
    constructor(value: T) { super(); this.value = value }
    abstract size(): number;
    public override async get?<K extends keyof T>(key: K): Promise<T[K]> { return this.value[key] }
    private get it(): T { return this.value }
    over(a: string): void;
    over(a: any): void {}
    static { Box.count = 1 }
}
"#), @r#"

             class Box    extends Base                           {
                         value   ;
               static count          = 0;
                  late         ;
        ;
        ;
        constructor(value   ) { super(); this.value = value }
        ;
                        async get                    (key   )                { return this.value[key] }
                get it()    { return this.value }
        ;
        over(a     )       {}
        static { Box.count = 1 }
    }
    "#);
}

/// Without a semicolon in its place, what stands around a type could become one statement.
#[test]
fn tokens_separated_by_a_type_stay_separated() {
    insta::assert_snapshot!(stripped("let a = f\ntype T = 1\n(g)()\nlet b = a as any\n(h)()\nlet c = b satisfies X\n[1].map(i)\nlet d = (c as any)\n"), @r#"
let a = f
;
(g)()
let b = a;
(h)()
let c = b;
[1].map(i)
let d = (c       )
"#);
}

#[test]
fn syntax_beyond_types_is_refused_with_its_position() {
    let refusals = [
        "let a = 1;\nenum Color { Red }",
        "namespace N { export const a = 1 }",
        "class A { constructor(private a: string) {} }",
        "@sealed class A {}",
        "import fs = require('fs');",
        "export = 5;",
        "class A { accessor x = 1 }",
        "let a: = 5;",
        "function OnUpdate(doc {",
        "const é: string = 'é'; enum E {}",
        "let a = <div/>;",
    ]
    .map(|source| strip(source).unwrap_err().to_string());
    insta::assert_snapshot!(refusals.join("\n"), @r#"
    SyntaxError: an enum would need other code: only types can be removed (line 2, column 1)
    SyntaxError: a namespace would need other code: only types can be removed (line 1, column 1)
    SyntaxError: a parameter that is a property would need other code: only types can be removed (line 1, column 23)
    SyntaxError: a decorator would need other code: only types can be removed (line 1, column 1)
    SyntaxError: import = would need other code: only types can be removed (line 1, column 1)
    SyntaxError: export = would need other code: only types can be removed (line 1, column 1)
    SyntaxError: an accessor would need other code: only types can be removed (line 1, column 11)
    SyntaxError: Unexpected token (line 1, column 8)
    SyntaxError: Expected `,` or `)` but found `{` (line 1, column 23)
    SyntaxError: an enum would need other code: only types can be removed (line 1, column 24)
    SyntaxError: Expected `>` but found `/` (line 1, column 13)
    "#);
}

#[test]
fn plain_javascript_is_unchanged() {
    let source = "'use strict';\nlabel: for (;;) { break label }\nconst { a, b: [c] } = x ?? y;\nclass A { static #p = 1; 'public' = 2; readonly = 3; get get() { return `${this}` } }\nexport default async function* f() { yield* await g?.(/re/u) }\n";
    assert_eq!(strip(source).unwrap(), source);
}
