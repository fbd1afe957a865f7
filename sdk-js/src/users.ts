/** Users, their groups, and the roles of both. */

import type { OperationOptions } from './deadline.js'

/** What a user may do, everywhere or in a bucket, scope or collection. */
export class Role {
  name: string
  bucket: string | undefined
  scope: string | undefined
  collection: string | undefined

  constructor(data: {
    name: string
    bucket?: string | undefined
    scope?: string | undefined
    collection?: string | undefined
  }) {
    this.name = data.name
    this.bucket = data.bucket
    this.scope = data.scope
    this.collection = data.collection
  }
}

/** A role that the server knows. */
export type RoleAndDescription = Role & { displayName: string; description: string }

/** What gives a role: `user`, or `group` with its name. */
export interface Origin {
  type: string
  name?: string
}

/** A role of a user, and what gives it. */
export type RoleAndOrigin = Role & { origins: Origin[] }

/** What a user is made of. */
export interface IUser {
  username: string
  displayName?: string
  groups?: string[]
  /** Roles, or their names, as `admin` or `data_reader[bucket]`. */
  roles?: (Role | string)[]
  password?: string
}

/** A user. */
export class User {
  username: string
  displayName: string | undefined
  groups: string[]
  roles: Role[]

  constructor(data: { username: string; displayName?: string | undefined; groups?: string[]; roles?: Role[] }) {
    this.username = data.username
    this.displayName = data.displayName
    this.groups = data.groups ?? []
    this.roles = data.roles ?? []
  }
}

/** A user as the server knows it. */
export type UserAndMetadata = User & {
  domain: string
  /** Roles of the user and of its groups. */
  effectiveRoles: RoleAndOrigin[]
  passwordChanged: Date | undefined
  externalGroups: string[]
}

/** What a group is made of. */
export interface IGroup {
  name: string
  description?: string
  roles?: (Role | string)[]
  ldapGroupReference?: string
}

/** A group of users. */
export class Group {
  name: string
  description: string
  roles: Role[]
  ldapGroupReference: string | undefined

  constructor(data: { name: string; description?: string; roles?: Role[]; ldapGroupReference?: string | undefined }) {
    this.name = data.name
    this.description = data.description ?? ''
    this.roles = data.roles ?? []
    this.ldapGroupReference = data.ldapGroupReference
  }
}

/** Options of operations on users. */
export interface UserOptions extends OperationOptions {
  /** `local`, or `external` for users whose passwords are elsewhere. */
  domainName?: string
}
