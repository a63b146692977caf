// Two namespaces for a pair, in two regions, with a policy for each who needs one and no right more.
//
//   az deployment group create --resource-group orders --template-file deploy/azure/main.bicep \
//     --parameters primaryName=contoso-orders secondaryName=contoso-orders-backlog secondaryLocation=northeurope
//
// Backlog queues are not made here: pairing makes them (contoso-orders/x-servicebus-transfer/0 ... 9).
// Keys are no output: a deployment's outputs stay readable in its history. The last output is the command that reads them.

targetScope = 'resourceGroup'

@description('Name of the primary namespace: its first label names the backlog queues, so do not change it later.')
@minLength(6)
@maxLength(50)
param primaryName string

@description('Name of the secondary namespace. Keep it for the backlog alone: who pairs may manage all of it.')
@minLength(6)
@maxLength(50)
param secondaryName string

@description('Region of the primary.')
param primaryLocation string = resourceGroup().location

@description('Region of the secondary: another one, so that one outage does not take both.')
param secondaryLocation string

@description('Tier of both. Basic has no topics, sessions, duplicate detection nor scheduling.')
@allowed(['Standard', 'Premium'])
param tier string = 'Standard'

@description('Queues of the application. Duplicate detection recognises a message that an outage has made to be sent twice.')
param queues array = [
  {
    name: 'orders'
    requiresSession: false
  }
]

@description('Tags of both namespaces.')
param tags object = {}

resource primary 'Microsoft.ServiceBus/namespaces@2024-01-01' = {
  name: primaryName
  location: primaryLocation
  tags: tags
  sku: {
    name: tier
    tier: tier
  }
  properties: {
    minimumTlsVersion: '1.2'
  }
}

resource secondary 'Microsoft.ServiceBus/namespaces@2024-01-01' = {
  name: secondaryName
  location: secondaryLocation
  tags: tags
  sku: {
    name: tier
    tier: tier
  }
  properties: {
    minimumTlsVersion: '1.2'
  }
}

resource applicationQueues 'Microsoft.ServiceBus/namespaces/queues@2024-01-01' = [
  for queue in queues: {
    parent: primary
    name: queue.name
    properties: {
      requiresSession: queue.requiresSession
      requiresDuplicateDetection: true
      duplicateDetectionHistoryTimeWindow: 'PT1H'
      deadLetteringOnMessageExpiration: true
    }
  }
]

// A namespace changes one policy at a time: together they end in a conflict.
var primaryPolicies = [
  { name: 'application', rights: ['Send'] } // sends, paired
  { name: 'consumers', rights: ['Listen'] } // receives
  { name: 'syphon', rights: ['Send'] } // carries parked messages home
]
var secondaryPolicies = [
  { name: 'application', rights: ['Manage', 'Send', 'Listen'] } // makes sure of the backlog queues, and parks
  { name: 'syphon', rights: ['Listen'] } // empties the backlog queues
]

@batchSize(1)
resource primaryRules 'Microsoft.ServiceBus/namespaces/AuthorizationRules@2024-01-01' = [
  for policy in primaryPolicies: {
    parent: primary
    name: policy.name
    properties: {
      rights: policy.rights
    }
  }
]

@batchSize(1)
resource secondaryRules 'Microsoft.ServiceBus/namespaces/AuthorizationRules@2024-01-01' = [
  for policy in secondaryPolicies: {
    parent: secondary
    name: policy.name
    properties: {
      rights: policy.rights
    }
  }
]

output primaryHost string = '${primary.name}.servicebus.windows.net'
output secondaryHost string = '${secondary.name}.servicebus.windows.net'
output backlogQueues string = '${primary.name}/x-servicebus-transfer/0 ...'
output readKeys string = 'az servicebus namespace authorization-rule keys list --resource-group ${resourceGroup().name} --namespace-name ${primary.name} --name application --query primaryConnectionString --output tsv'
