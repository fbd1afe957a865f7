/** Users, their groups, and the roles of both. */

import type { OperationOptions } from './deadline.js'

/** A role, in the cluster or in a bucket, scope or collection. */
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

/** Origin of a role: `user`, or `group` with its name. */
export interface Origin {
  type: string
  name?: string
}

/** A role of a user, and its origins. */
export type RoleAndOrigin = Role & { origins: Origin[] }

/** Settings of a user. */
export interface IUser {
  username: string
  displayName?: string
  groups?: string[]
  /** Roles, or their names such as `admin` or `data_reader[bucket]`. */
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

/** A user with the server's metadata. */
export type UserAndMetadata = User & {
  domain: string
  /** Roles of the user itself and of its groups. */
  effectiveRoles: RoleAndOrigin[]
  passwordChanged: Date | undefined
  externalGroups: string[]
}

/** Settings of a group. */
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
  /** `local`, or `external` for users with passwords in another system. */
  domainName?: string
}
