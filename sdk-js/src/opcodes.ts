/** Codes of the binary protocol: opcodes, statuses and features. */

/** Opcode of a request, which its response repeats. */
export const Opcode = {
  Get: 0x00,
  Set: 0x01,
  Add: 0x02,
  Replace: 0x03,
  Delete: 0x04,
  Increment: 0x05,
  Decrement: 0x06,
  Noop: 0x0a,
  Append: 0x0e,
  Prepend: 0x0f,
  Touch: 0x1c,
  GetAndTouch: 0x1d,
  Hello: 0x1f,
  SaslListMechs: 0x20,
  SaslAuth: 0x21,
  SaslStep: 0x22,
  GetReplica: 0x83,
  SelectBucket: 0x89,
  ObserveSeqno: 0x91,
  GetLocked: 0x94,
  Unlock: 0x95,
  GetMeta: 0xa0,
  GetClusterConfig: 0xb5,
  GetCollectionId: 0xbb,
  SubdocGet: 0xc5,
  SubdocExists: 0xc6,
  SubdocDictAdd: 0xc7,
  SubdocDictUpsert: 0xc8,
  SubdocDelete: 0xc9,
  SubdocReplace: 0xca,
  SubdocArrayPushLast: 0xcb,
  SubdocArrayPushFirst: 0xcc,
  SubdocArrayInsert: 0xcd,
  SubdocArrayAddUnique: 0xce,
  SubdocCounter: 0xcf,
  SubdocMultiLookup: 0xd0,
  SubdocMultiMutation: 0xd1,
  SubdocGetCount: 0xd2,
  SubdocReplaceBodyWithXattr: 0xd3,
  RangeScanCreate: 0xda,
  RangeScanContinue: 0xdb,
  RangeScanCancel: 0xdc,
} as const

/** Status of a response, as far as this client distinguishes statuses. */
export const Status = {
  Success: 0x00,
  KeyNotFound: 0x01,
  KeyExists: 0x02,
  TooBig: 0x03,
  Invalid: 0x04,
  NotStored: 0x05,
  DeltaBadValue: 0x06,
  NotMyVbucket: 0x07,
  NoBucket: 0x08,
  Locked: 0x09,
  NotLocked: 0x0e,
  AuthStale: 0x1f,
  AuthError: 0x20,
  AuthContinue: 0x21,
  Access: 0x24,
  UnknownCommand: 0x81,
  NoMemory: 0x82,
  NotSupported: 0x83,
  Busy: 0x85,
  TemporaryFailure: 0x86,
  XattrInvalid: 0x87,
  UnknownCollection: 0x88,
  UnknownScope: 0x8c,
  DurabilityInvalidLevel: 0xa0,
  DurabilityImpossible: 0xa1,
  SyncWriteInProgress: 0xa2,
  SyncWriteAmbiguous: 0xa3,
  SyncWriteRecommit: 0xa4,
  RangeScanCancelled: 0xa5,
  RangeScanMore: 0xa6,
  RangeScanComplete: 0xa7,
  VbUuidNotEqual: 0xa8,
  PathNotFound: 0xc0,
  PathMismatch: 0xc1,
  PathInvalid: 0xc2,
  PathTooBig: 0xc3,
  DocumentTooDeep: 0xc4,
  ValueCannotInsert: 0xc5,
  DocumentNotJson: 0xc6,
  NumberRange: 0xc7,
  DeltaInvalid: 0xc8,
  PathExists: 0xc9,
  ValueTooDeep: 0xca,
  InvalidCombination: 0xcb,
  MultiPathFailure: 0xcc,
  SuccessDeleted: 0xcd,
  XattrUnknownMacro: 0xd0,
  XattrUnknownVirtual: 0xd1,
  XattrCannotModifyVirtual: 0xd2,
  MultiPathFailureDeleted: 0xd3,
  InvalidXattrOrder: 0xd4,
  CanOnlyReviveDeleted: 0xd6,
} as const

/** Features that HELLO negotiates. The client never requests Snappy, so that values arrive uncompressed. */
export const Feature = {
  TcpNoDelay: 0x03,
  MutationSeqno: 0x04,
  Xattr: 0x06,
  Xerror: 0x07,
  SelectBucket: 0x08,
  Json: 0x0b,
  Duplex: 0x0c,
  MapPush: 0x0d,
  UnorderedExecution: 0x0e,
  AltRequest: 0x10,
  SyncReplication: 0x11,
  Collections: 0x12,
  PreserveTtl: 0x14,
  VirtualXattr: 0x15,
  CreateAsDeleted: 0x17,
  DocumentMacros: 0x18,
  ReplaceBodyWithXattr: 0x19,
  ReplicaLookup: 0x1c,
  ManyXattrs: 0x20,
} as const

/** Opcode by which a server pushes its map. */
export const PUSHED_MAP = 0x01

/** Bit of a frame's datatype: the value is JSON. */
export const DATATYPE_JSON = 0x01

const OPERATION_NAMES = new Map<number, string>(Object.entries(Opcode).map(([name, code]) => [code, name]))

/** Returns the name of an opcode for messages. */
export function operationName(code: number): string {
  return OPERATION_NAMES.get(code) ?? hex(code)
}

/** Formats a number for messages, for example `0x01`. */
export function hex(code: number): string {
  return `0x${code.toString(16).padStart(2, '0')}`
}
