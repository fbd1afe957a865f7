/** Management of users and groups. */

import type { OperationOptions } from './deadline.js'
import { GroupNotFoundError, InvalidArgumentError, UserNotFoundError } from './errors.js'
import { type HttpResponse, readJson, segment } from './http-messages.js'
import { Manager, requireSuccess } from './bucket-manager.js'
import { checkOptions } from './option-names.js'
import {
  Group,
  type IGroup,
  type IUser,
  Role,
  type RoleAndDescription,
  type RoleAndOrigin,
  User,
  type UserAndMetadata,
  type UserOptions,
} from './users.js'

const RBAC = '/settings/rbac'

/** Manages the users and groups of a cluster. */
export class UserManager extends Manager {
  /**
   * Returns a user.
   *
   * @throws UserNotFoundError if it does not exist.
   */
  async getUser(username: string, options: UserOptions = {}): Promise<UserAndMetadata> {
    checkOptions('getUser', options)
    return readJson(requireUser(await this.send('GET', userPath(options, username), plain(options))), readUser)
  }

  /** Returns all users of a domain. */
  async getAllUsers(options: UserOptions = {}): Promise<UserAndMetadata[]> {
    checkOptions('getAllUsers', options)
    const response = requireSuccess(await this.send('GET', userPath(options), plain(options)))
    return readJson(response, (users) => users.map(readUser))
  }

  /** Creates a user, or replaces its settings. Without a password, an existing user keeps its password. */
  async upsertUser(user: IUser, options: UserOptions = {}): Promise<void> {
    checkOptions('upsertUser', options)
    const fields = {
      name: user.displayName,
      groups: (user.groups ?? []).join(','),
      roles: writeRoles(user.roles),
      password: user.password,
    }
    requireSuccess(await this.send('PUT', userPath(options, user.username), plain(options), fields))
  }

  /**
   * Drops a user and closes its connections.
   *
   * @throws UserNotFoundError if it does not exist.
   */
  async dropUser(username: string, options: UserOptions = {}): Promise<void> {
    checkOptions('dropUser', options)
    requireUser(await this.send('DELETE', userPath(options, username), plain(options)))
  }

  /** Changes the password of the connected user. Call `cluster.updateCredentials` afterwards. */
  async changePassword(newPassword: string, options: OperationOptions = {}): Promise<void> {
    checkOptions('changePassword', options)
    requireSuccess(await this.send('POST', '/controller/changePassword', options, { password: newPassword }))
  }

  /** Returns all roles. */
  async getRoles(options: OperationOptions = {}): Promise<RoleAndDescription[]> {
    checkOptions('getRoles', options)
    const response = requireSuccess(await this.send('GET', `${RBAC}/roles`, options))
    return readJson(response, (roles) =>
      roles.map((role: any) => Object.assign(readRole(role), { displayName: role.name, description: role.desc })),
    )
  }

  /**
   * Returns a group.
   *
   * @throws GroupNotFoundError if it does not exist.
   */
  async getGroup(groupName: string, options: OperationOptions = {}): Promise<Group> {
    checkOptions('getGroup', options)
    return readJson(requireGroup(await this.send('GET', groupPath(groupName), options)), readGroup)
  }

  /** Returns all groups. */
  async getAllGroups(options: OperationOptions = {}): Promise<Group[]> {
    checkOptions('getAllGroups', options)
    const response = requireSuccess(await this.send('GET', `${RBAC}/groups`, options))
    return readJson(response, (groups) => groups.map(readGroup))
  }

  /** Creates a group, or replaces its settings. */
  async upsertGroup(group: IGroup, options: OperationOptions = {}): Promise<void> {
    checkOptions('upsertGroup', options)
    const fields = {
      description: group.description,
      roles: writeRoles(group.roles),
      ldap_group_ref: group.ldapGroupReference,
    }
    requireSuccess(await this.send('PUT', groupPath(group.name), options, fields))
  }

  /**
   * Drops a group. Its users lose the roles of the group.
   *
   * @throws GroupNotFoundError if it does not exist.
   */
  async dropGroup(groupName: string, options: OperationOptions = {}): Promise<void> {
    checkOptions('dropGroup', options)
    requireGroup(await this.send('DELETE', groupPath(groupName), options))
  }
}

function plain({ domainName: _, ...options }: UserOptions): OperationOptions {
  return options
}

function userPath({ domainName = 'local' }: UserOptions, username?: string): string {
  const users = `${RBAC}/users/${segment(domainName)}`
  return username === undefined ? users : `${users}/${nameOf('user', username)}`
}

function groupPath(name: string): string {
  return `${RBAC}/groups/${nameOf('group', name)}`
}

function nameOf(kind: string, name: string): string {
  if (typeof name !== 'string' || !name) throw new InvalidArgumentError(`a ${kind} has a name`)
  return segment(name)
}

function requireUser(response: HttpResponse): HttpResponse {
  if (response.status === 404) throw new UserNotFoundError(response.text, response.context)
  return requireSuccess(response)
}

function requireGroup(response: HttpResponse): HttpResponse {
  if (response.status === 404) throw new GroupNotFoundError(response.text, response.context)
  return requireSuccess(response)
}

/** Formats roles for the server: `name[bucket:scope:collection]`, separated by commas. */
function writeRoles(roles: (Role | string)[] = []): string {
  return roles
    .map((role) => {
      if (typeof role === 'string') return role
      const place = [role.bucket, role.scope, role.collection].filter((part) => part !== undefined)
      return place.length ? `${role.name}[${place.join(':')}]` : role.name
    })
    .join(',')
}

function readRole(role: any): Role {
  const known = (name: unknown): string | undefined => (name === '*' || typeof name !== 'string' ? undefined : name)
  const bucket = typeof role.bucket_name === 'string' ? role.bucket_name : undefined
  return new Role({ name: role.role, bucket, scope: known(role.scope_name), collection: known(role.collection_name) })
}

function readUser(user: any): UserAndMetadata {
  const effectiveRoles: RoleAndOrigin[] = user.roles.map((role: any) =>
    Object.assign(readRole(role), { origins: role.origins ?? [{ type: 'user' }] }),
  )
  const own = effectiveRoles.filter(({ origins }) => origins.some(({ type }) => type === 'user'))
  const bare = new User({
    username: user.id,
    displayName: user.name || undefined,
    groups: user.groups ?? [],
    roles: own.map(({ origins: _, ...role }) => new Role(role)),
  })
  return Object.assign(bare, {
    domain: user.domain,
    effectiveRoles,
    passwordChanged: user.password_change_date ? new Date(user.password_change_date) : undefined,
    externalGroups: user.external_groups ?? [],
  })
}

function readGroup(group: any): Group {
  return new Group({
    name: group.id,
    description: group.description,
    roles: group.roles.map(readRole),
    ldapGroupReference: group.ldap_group_ref || undefined,
  })
}
