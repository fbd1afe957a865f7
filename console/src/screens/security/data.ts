// Users, groups, roles and certificates.

export interface Role {
  role: string;
  bucket_name?: string;
  scope_name?: string;
  collection_name?: string;
  origins?: { type: string; name?: string }[];
}
export interface RoleKind extends Role {
  name?: string;
  desc?: string;
}
export interface User {
  id: string;
  name?: string;
  domain: string;
  roles: Role[];
  groups?: string[];
  password_change_date?: string;
}
export interface Group {
  id: string;
  description?: string;
  roles: Role[];
}
export interface Certificate {
  subject?: string;
  node?: string;
  expires?: string;
  notAfter?: string;
}

/** A role as forms have it: `data_reader[bucket:scope:collection]`. */
export function roleText({ role, bucket_name, scope_name, collection_name }: Role): string {
  const parts = [bucket_name, scope_name, collection_name].filter((part): part is string => part !== undefined && part !== '');
  while (parts.length > 1 && parts.at(-1) === '*') parts.pop();
  return parts.length ? `${role}[${parts.join(':')}]` : role;
}

/** Returns the whole days until a time, or nothing if the text is not a time. */
export function daysLeft(until: string | undefined, nowMs: number): number | null {
  const at = Date.parse(until ?? '');
  return Number.isNaN(at) ? null : Math.floor((at - nowMs) / 86_400_000);
}

/** A token as the node lists it; its text is shown once, when it is created. */
export interface Token {
  id: string;
  name: string;
  /** Roles; none at all for a token with the rights of its user. */
  scopes: string[] | null;
  /** Seconds since the Unix epoch. */
  created: number;
  expires: number;
}

/** Roles of a text, separated by commas outside of brackets. */
export const rolesOf = (text: string): string[] => text.split(/,(?![^[]*\])/).map((role) => role.trim()).filter(Boolean);

/** Body of the request for a token. */
export function tokenOf({ name, scopes, days }: { name: string; scopes: string; days: number }): Record<string, unknown> {
  const roles = rolesOf(scopes);
  return { name, ttl: Math.round(days * 86_400), ...(roles.length ? { scopes: roles } : {}) };
}
