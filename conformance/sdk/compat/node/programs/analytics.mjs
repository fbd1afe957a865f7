// Analytics, of which the node runs no service: errors, and what needs none.

import * as couchbase from 'couchbase'

const {
  AnalyticsEncryptionLevel,
  AnalyticsLinkType,
  AnalyticsScanConsistency,
  AnalyticsStatus,
  AzureExternalAnalyticsLink,
  CouchbaseAnalyticsEncryptionSettings,
  CouchbaseRemoteAnalyticsLink,
  S3ExternalAnalyticsLink,
} = couchbase

export async function a_query_without_the_service({ cluster, fails }) {
  return await fails(cluster.analyticsQuery('SELECT 1'))
}

export async function a_query_of_a_scope_without_the_service({ scope, fails }) {
  return await fails(scope.analyticsQuery('SELECT 1', { parameters: { x: 1 }, priority: true, readOnly: true }))
}

export async function a_query_with_a_callback_without_the_service({ cluster }) {
  return await new Promise((resolve) => {
    const scanConsistency = AnalyticsScanConsistency.RequestPlus
    cluster.analyticsQuery('SELECT 1', { scanConsistency }, (error) => resolve(error.constructor.name))
  })
}

export async function a_query_that_is_listened_to_without_the_service({ cluster }) {
  return await new Promise((resolve) => {
    cluster.analyticsQuery('SELECT 1').on('row', () => {}).on('error', (error) => resolve(error.constructor.name))
  })
}

export async function management_without_the_service({ cluster, fails }) {
  const manager = cluster.analyticsIndexes()
  const link = { linkType: AnalyticsLinkType.S3External, dataverse: 'd', name: 'l', accessKeyId: 'a', secretAccessKey: 'k', region: 'r' }
  return [
    await fails(manager.createDataverse('d', { ignoreIfExists: true })),
    await fails(manager.dropDataverse('d')),
    await fails(manager.createDataset('b', 's', { dataverseName: 'b/s', condition: 'x = 1' })),
    await fails(manager.dropDataset('s')),
    await fails(manager.createIndex('s', 'i', { f: 'string' })),
    await fails(manager.dropIndex('s', 'i')),
    await fails(manager.getAllDatasets()),
    await fails(manager.getAllIndexes()),
    await fails(manager.connectLink()),
    await fails(manager.disconnectLink({ linkName: 'l' })),
    await fails(manager.getPendingMutations()),
    await fails(manager.createLink(link)),
    await fails(manager.replaceLink(link)),
    await fails(manager.dropLink('l', 'd')),
    await fails(manager.getAllLinks({ dataverse: 'd' })),
  ]
}

export async function names_of_values() {
  return [AnalyticsScanConsistency.NotBounded, AnalyticsStatus.Fatal, AnalyticsLinkType.CouchbaseRemote, AnalyticsEncryptionLevel.Half]
}

export async function links_that_are_complete() {
  const full = AnalyticsEncryptionLevel.Full
  const encryption = new CouchbaseAnalyticsEncryptionSettings({
    encryptionLevel: full,
    certificate: Buffer.from('a'),
    clientCertificate: Buffer.from('b'),
    clientKey: Buffer.from('c'),
  })
  const place = { dataverse: 'd', name: 'l' }
  const links = [
    new CouchbaseRemoteAnalyticsLink({ ...place, hostname: 'h', encryption }),
    new S3ExternalAnalyticsLink({ ...place, accessKeyId: 'a', secretAccessKey: 'k', region: 'r' }),
    new AzureExternalAnalyticsLink({ ...place, connectionString: 'c' }),
  ]
  for (const link of links) link.validate()
  return [links[0].linkType, links[0].encryption.encryptionLevel, links[1].region, links[2].dataverse, links[2].name]
}

export async function links_that_are_incomplete({ fails }) {
  const none = new CouchbaseAnalyticsEncryptionSettings({ encryptionLevel: AnalyticsEncryptionLevel.None })
  const place = { dataverse: 'd', name: 'l' }
  const links = [
    new CouchbaseRemoteAnalyticsLink({ ...place, hostname: 'h', encryption: none }),
    new CouchbaseRemoteAnalyticsLink({ ...place, hostname: '', encryption: none, username: 'u', password: 'p' }),
    new S3ExternalAnalyticsLink({ ...place, accessKeyId: 'a', region: 'r' }),
    new AzureExternalAnalyticsLink({ ...place, accountName: 'n' }),
    new AzureExternalAnalyticsLink({ ...place, dataverse: '', connectionString: 'c' }),
  ]
  return await Promise.all(links.map((link) => fails((async () => link.validate())())))
}
