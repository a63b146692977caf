# Two namespaces for a pair, in two regions, with a policy for each who needs one and no right more.
#
#   terraform init
#   terraform apply -var primary_name=contoso-orders -var secondary_name=contoso-orders-backlog
#   terraform output -raw application_primary_connection_string
#
# Backlog queues are not made here: pairing makes them (contoso-orders/x-servicebus-transfer/0 ... 9).
# The state holds the keys: keep it where only those who may have them can read it.

terraform {
  required_version = ">= 1.5"
  required_providers {
    azurerm = {
      source  = "hashicorp/azurerm"
      version = "~> 4.0"
    }
  }
}

provider "azurerm" {
  features {}
}

variable "resource_group_name" {
  description = "Resource group of both namespaces, which is made."
  type        = string
  default     = "orders"
}

variable "primary_name" {
  description = "Name of the primary namespace: its first label names the backlog queues, so do not change it later."
  type        = string
  validation {
    condition     = can(regex("^[A-Za-z][A-Za-z0-9-]{4,48}[A-Za-z0-9]$", var.primary_name))
    error_message = "A namespace's name has 6 to 50 letters, digits and hyphens, and begins with a letter."
  }
}

variable "secondary_name" {
  description = "Name of the secondary namespace. Keep it for the backlog alone: who pairs may manage all of it."
  type        = string
  validation {
    condition     = can(regex("^[A-Za-z][A-Za-z0-9-]{4,48}[A-Za-z0-9]$", var.secondary_name))
    error_message = "A namespace's name has 6 to 50 letters, digits and hyphens, and begins with a letter."
  }
}

variable "primary_location" {
  description = "Region of the primary."
  type        = string
  default     = "westeurope"
}

variable "secondary_location" {
  description = "Region of the secondary: another one, so that one outage does not take both."
  type        = string
  default     = "northeurope"
}

variable "tier" {
  description = "Tier of both. Basic has no topics, sessions, duplicate detection nor scheduling."
  type        = string
  default     = "Standard"
  validation {
    condition     = contains(["Standard", "Premium"], var.tier)
    error_message = "Standard or Premium."
  }
}

variable "queues" {
  description = "Queues of the application, by name."
  type        = map(object({ requires_session = optional(bool, false) }))
  default     = { orders = {} }
}

variable "tags" {
  description = "Tags of everything."
  type        = map(string)
  default     = {}
}

locals {
  namespaces = {
    primary   = { name = var.primary_name, location = var.primary_location }
    secondary = { name = var.secondary_name, location = var.secondary_location }
  }
  # Manage asks for Send and Listen, too.
  policies = {
    "primary/application"   = { manage = false, send = true, listen = false } # sends, paired
    "primary/consumers"     = { manage = false, send = false, listen = true } # receives
    "primary/syphon"        = { manage = false, send = true, listen = false } # carries parked messages home
    "secondary/application" = { manage = true, send = true, listen = true }   # makes sure of the backlog queues, and parks
    "secondary/syphon"      = { manage = false, send = false, listen = true } # empties the backlog queues
  }
}

resource "azurerm_resource_group" "pair" {
  name     = var.resource_group_name
  location = var.primary_location
  tags     = var.tags
}

resource "azurerm_servicebus_namespace" "pair" {
  for_each                     = local.namespaces
  name                         = each.value.name
  location                     = each.value.location
  resource_group_name          = azurerm_resource_group.pair.name
  sku                          = var.tier
  capacity                     = var.tier == "Premium" ? 1 : 0
  premium_messaging_partitions = var.tier == "Premium" ? 1 : 0
  minimum_tls_version          = "1.2"
  tags                         = var.tags

  lifecycle {
    prevent_destroy = true # with it would go the messages
  }
}

# Duplicate detection recognises a message that an outage has made to be sent twice.
resource "azurerm_servicebus_queue" "application" {
  for_each                                = var.queues
  name                                    = each.key
  namespace_id                            = azurerm_servicebus_namespace.pair["primary"].id
  requires_session                        = each.value.requires_session
  requires_duplicate_detection            = true
  duplicate_detection_history_time_window = "PT1H"
  dead_lettering_on_message_expiration    = true
}

resource "azurerm_servicebus_namespace_authorization_rule" "pair" {
  for_each     = local.policies
  name         = split("/", each.key)[1]
  namespace_id = azurerm_servicebus_namespace.pair[split("/", each.key)[0]].id
  manage       = each.value.manage
  send         = each.value.send
  listen       = each.value.listen
}

output "primary_host" {
  value = "${var.primary_name}.servicebus.windows.net"
}

output "secondary_host" {
  value = "${var.secondary_name}.servicebus.windows.net"
}

output "application_primary_connection_string" {
  value     = azurerm_servicebus_namespace_authorization_rule.pair["primary/application"].primary_connection_string
  sensitive = true
}

output "application_secondary_connection_string" {
  value     = azurerm_servicebus_namespace_authorization_rule.pair["secondary/application"].primary_connection_string
  sensitive = true
}

output "syphon_primary_connection_string" {
  value     = azurerm_servicebus_namespace_authorization_rule.pair["primary/syphon"].primary_connection_string
  sensitive = true
}

output "syphon_secondary_connection_string" {
  value     = azurerm_servicebus_namespace_authorization_rule.pair["secondary/syphon"].primary_connection_string
  sensitive = true
}
