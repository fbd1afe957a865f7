// Design documents and what their views answer.

export interface Design {
  views?: Record<string, { map: string; reduce?: string }>;
  [member: string]: unknown;
}
export interface DesignRow {
  doc: { meta: { id: string }; json: Design };
}
export interface ViewRow {
  id?: string;
  key: unknown;
  value: unknown;
}

export const designName = (row: DesignRow): string => row.doc.meta.id.replace(/^_design\//, '');
export const isDevelopment = (name: string): boolean => name.startsWith('dev_');
export const emptyDesign = (): Design => ({ views: { by_name: { map: 'function (doc, meta) {\n  if (doc.name) emit(doc.name, null);\n}' } } });

/** The design document with other functions of a view. */
export function withView(design: Design, view: string, map: string, reduce: string): Design {
  const { reduce: _, ...before } = design.views?.[view] ?? {};
  const next = reduce.trim() ? { ...before, map, reduce: reduce.trim() } : { ...before, map };
  return { ...design, views: { ...design.views, [view]: next } };
}

/** Result of a preview. */
export interface Previewed {
  about: { read: number; us_per_document: number; errors: { id: string; message: string }[]; log: string[]; complete: boolean };
  emitted: { rows: ViewRow[] };
  reduced: { rows: ViewRow[] } | null;
}

/** Asks for a preview: of the documents `ids`, which commas separate, or of those written last. */
export function previewOf(design: Design, view: string, ids: string, level: string): Record<string, unknown> {
  const documents = ids.split(',').map((id) => id.trim()).filter(Boolean);
  return { design, view, ...(documents.length ? { documents } : {}), ...(/^\d+$/.test(level.trim()) ? { group_level: Number(level) } : {}) };
}

export interface ViewQuery {
  stale: string;
  limit: string;
  key: string;
  startkey: string;
  endkey: string;
  group_level: string;
  reduce: boolean;
  descending: boolean;
}

/** The parameters of a request. A text that is no JSON is sent as a JSON text: people type names without quotes. */
export function parametersOf(query: ViewQuery, hasReduce: boolean): string {
  const json = (text: string): string => {
    try {
      JSON.parse(text);
      return text;
    } catch {
      return JSON.stringify(text);
    }
  };
  const parameters = new URLSearchParams({ stale: query.stale });
  for (const name of ['key', 'startkey', 'endkey'] as const) if (query[name].trim()) parameters.set(name, json(query[name].trim()));
  if (query.descending) parameters.set('descending', 'true');
  if (hasReduce) {
    parameters.set('reduce', String(query.reduce));
    if (query.reduce && query.group_level.trim()) parameters.set('group_level', query.group_level.trim());
  }
  if (!hasReduce || !query.reduce) parameters.set('limit', query.limit);
  return parameters.toString();
}
