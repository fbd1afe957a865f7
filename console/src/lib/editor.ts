// CodeMirror, as the console uses it. It lives in a shadow root: the page's policy forbids styles that scripts write into the document,
// and in a shadow root the editor adopts style sheets instead.

import { autocompletion, closeBrackets, closeBracketsKeymap, closeCompletion, completionKeymap, type CompletionSource } from '@codemirror/autocomplete';
import { defaultKeymap, history, historyKeymap, indentWithTab } from '@codemirror/commands';
import { javascript } from '@codemirror/lang-javascript';
import { json, jsonParseLinter } from '@codemirror/lang-json';
import { SQLDialect, sql } from '@codemirror/lang-sql';
import { HighlightStyle, bracketMatching, foldGutter, foldKeymap, indentOnInput, syntaxHighlighting } from '@codemirror/language';
import { lintKeymap, linter, setDiagnostics } from '@codemirror/lint';
import { searchKeymap } from '@codemirror/search';
import { EditorState, type Extension, type Transaction } from '@codemirror/state';
import { EditorView, drawSelection, highlightActiveLine, highlightActiveLineGutter, keymap, lineNumbers } from '@codemirror/view';
import { tags } from '@lezer/highlight';

export type Language = 'json' | 'sql' | 'javascript' | 'text';

/** Text above which a document is neither coloured nor folded, in characters. */
const PLAIN_CHARS = 1 << 20;

const look = EditorView.theme({
  '&': { height: '100%', fontSize: '13px', backgroundColor: 'var(--panel)', color: 'var(--text)' },
  '.cm-scroller': { fontFamily: 'var(--mono)', lineHeight: '1.6', fontVariantLigatures: 'none' },
  '.cm-gutters': { backgroundColor: 'var(--panel)', color: 'var(--muted)', border: 'none' },
  '.cm-activeLine, .cm-activeLineGutter': { backgroundColor: 'color-mix(in oklab, var(--accent) 7%, transparent)' },
  '&.cm-focused': { outline: 'none' },
  '.cm-cursor': { borderLeftColor: 'var(--accent)' },
  '.cm-selectionBackground, &.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground': { backgroundColor: 'color-mix(in oklab, var(--accent) 24%, transparent)' },
  '.cm-tooltip': { backgroundColor: 'var(--raised)', color: 'var(--text)', border: '1px solid var(--line)' },
  '.cm-tooltip-autocomplete > ul > li[aria-selected]': { backgroundColor: 'var(--accent)', color: 'var(--accent-ink)' },
  '.cm-panels': { backgroundColor: 'var(--sunken)', color: 'var(--text)' },
});

const colours = HighlightStyle.define([
  { tag: [tags.keyword, tags.operatorKeyword, tags.modifier], color: 'var(--c3)' },
  { tag: [tags.string, tags.special(tags.string)], color: 'var(--good)' },
  { tag: [tags.number, tags.bool, tags.null], color: 'var(--c5)' },
  { tag: [tags.propertyName], color: 'var(--accent)' },
  { tag: [tags.comment], color: 'var(--muted)', fontStyle: 'italic' },
  { tag: [tags.function(tags.variableName)], color: 'var(--c4)' },
  { tag: tags.invalid, color: 'var(--bad)' },
]);

const sqlpp = SQLDialect.define({
  keywords:
    'advise all alter and any array as asc at begin between bucket build by call case cast cluster collate collection commit connect continue correlated cover create cross current database datastore declare decrement delete derived desc describe distinct do drop each element else end escape every except exclude execute exists explain fetch filter first flatten flush following for force from fts function golang grant group groups gsi hash having if ignore in include increment index infer inline inner insert intersect into is isolation javascript join key keys keyspace known language last lateral left let letting level like limit lsm map mapping matched materialized merge minus missing namespace nest next nl no not nth_value nulls number object offset on option or order others outer over parse partition password path pool preceding prepare primary private privilege probe procedure public range raw read realm recursive reduce rename replace respect return returning revoke right role rollback row rows satisfies save schema scope select self semi sequence set show some start statistics string system then ties to tran transaction trigger truncate unbounded under union unique unknown unnest unset update upsert use user using validate value valued values via view when where while window with within work xor',
  builtin: 'abs array_agg array_append array_contains array_length avg ceil coalesce contains count date_format_str floor greatest ifmissing ifnull least length lower max meta millis min now_millis now_str object_names object_pairs regexp_contains round split substr sum title to_number to_string trim type upper uuid',
  types: 'true false null missing',
  doubleDotStrings: false,
  identifierQuotes: '`',
  doubleQuotedStrings: true,
} as Parameters<typeof SQLDialect.define>[0]);

export interface Settings {
  parent: HTMLElement;
  label: string;
  language: Language;
  text: string;
  readOnly: boolean;
  onChange: (text: string) => void;
  /** Control and Enter. */
  onRun: () => void;
  complete?: CompletionSource;
}

export interface Handle {
  /** Replaces the text, as when another document is shown. */
  set(text: string): void;
  selection(): string;
  mark(line: number, column: number, message: string): void;
  unmark(): void;
  destroy(): void;
}

function languageOf(language: Language, complete: CompletionSource | undefined): Extension {
  switch (language) {
    case 'json':
      return [json(), linter(jsonParseLinter())];
    case 'sql': {
      const support = sql({ dialect: sqlpp, upperCaseKeywords: true });
      return complete ? [support, sqlpp.language.data.of({ autocomplete: complete })] : support;
    }
    case 'javascript':
      return javascript({ typescript: true });
    default:
      return [];
  }
}

/**
 * Writes typed text over a selection without the browser: Chromium would keep the colour of what was selected in a `style` attribute,
 * which the page's policy forbids and reports.
 */
const overSelection = EditorView.domEventHandlers({
  beforeinput(event, view) {
    const { from, to, empty } = view.state.selection.main;
    const { data } = event;
    if (event.inputType !== 'insertText' || event.isComposing || !data || empty || view.state.readOnly) return false;
    const insert = (): Transaction => view.state.update({ changes: { from, to, insert: data }, selection: { anchor: from + data.length }, userEvent: 'input.type', scrollIntoView: true });
    const isHandled = view.state.facet(EditorView.inputHandler).some((handle) => handle(view, from, to, data, insert));
    if (!isHandled) view.dispatch(insert());
    return true;
  },
});

export function edit(settings: Settings): Handle {
  const { parent, label, language, readOnly, onChange, onRun, complete } = settings;
  const root = parent.shadowRoot ?? parent.attachShadow({ mode: 'open' });
  const inner = document.createElement('div');
  inner.style.height = '100%';
  root.replaceChildren(inner);
  let silent = false;
  const state = (text: string): EditorState =>
    EditorState.create({
      doc: text,
      extensions: [
        keymap.of([{ key: 'Mod-Enter', run: (view) => (closeCompletion(view), onRun(), true) }]),
        lineNumbers(),
        text.length > PLAIN_CHARS ? [] : [foldGutter(), syntaxHighlighting(colours), languageOf(language, complete)],
        highlightActiveLine(),
        highlightActiveLineGutter(),
        history(),
        drawSelection(),
        overSelection,
        indentOnInput(),
        bracketMatching(),
        closeBrackets(),
        autocompletion(),
        EditorView.lineWrapping,
        look,
        EditorState.readOnly.of(readOnly),
        // A region that scrolls must be reachable by keys; checkers do not take editable text for that without an index.
        EditorView.contentAttributes.of({ 'aria-label': label, tabindex: '0' }),
        keymap.of([...closeBracketsKeymap, ...defaultKeymap, ...searchKeymap, ...historyKeymap, ...foldKeymap, ...completionKeymap, ...lintKeymap, indentWithTab]),
        EditorView.updateListener.of((update) => {
          if (update.docChanged && !silent) onChange(update.state.doc.toString());
        }),
      ],
    });
  const view = new EditorView({ state: state(settings.text), parent: inner, root });
  return {
    set(text) {
      if (text === view.state.doc.toString()) return;
      silent = true;
      view.setState(state(text));
      silent = false;
    },
    selection: () => view.state.sliceDoc(view.state.selection.main.from, view.state.selection.main.to),
    mark(line, column, message) {
      const { doc } = view.state;
      if (line < 1 || line > doc.lines) return;
      const at = doc.line(line);
      const from = Math.min(at.to, at.from + Math.max(0, column - 1));
      view.dispatch(setDiagnostics(view.state, [{ from, to: Math.max(from, at.to), severity: 'error', message }]));
    },
    unmark: () => view.dispatch(setDiagnostics(view.state, [])),
    destroy: () => view.destroy(),
  };
}
