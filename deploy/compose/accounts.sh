#!/bin/sh
# Creates the databases and their accounts. MySQL's image runs it once, on an empty volume. Only the owner may change
# the schemas. The other accounts get the grants of docs/operations/databases.md, and a test compares the two. With the
# argument `grants` it only gives these, which update.sh does for the tables of a new version.
set -eu

grants() {
  cat <<SQL
GRANT SELECT ON petstore_keys.accounts TO 'petstore_gateway'@'%';
GRANT SELECT, UPDATE ON petstore_keys.api_keys TO 'petstore_gateway'@'%';
GRANT SELECT, INSERT, UPDATE ON petstore_keys.deprecated_use TO 'petstore_gateway'@'%';
GRANT SELECT, INSERT, UPDATE, DELETE ON petstore_keys.account_minutes TO 'petstore_gateway'@'%';
GRANT SELECT, UPDATE ON petstore_stock.stock_head TO 'petstore_inventory'@'%';
GRANT SELECT, INSERT, UPDATE, DELETE ON petstore_stock.stock TO 'petstore_inventory'@'%';
GRANT SELECT, INSERT, DELETE ON petstore_stock.stock_ledger TO 'petstore_inventory'@'%';
GRANT SELECT, INSERT, DELETE ON petstore_stock.stock_times TO 'petstore_inventory'@'%';
GRANT SELECT, INSERT, UPDATE ON petstore_keys.accounts TO 'petstore_operator'@'%';
GRANT SELECT, INSERT, UPDATE ON petstore_keys.api_keys TO 'petstore_operator'@'%';
GRANT SELECT ON petstore_keys.deprecated_use TO 'petstore_operator'@'%';
GRANT SELECT ON petstore_keys.account_minutes TO 'petstore_operator'@'%';
GRANT SELECT ON petstore_keys.gateway_migrations TO 'petstore_operator'@'%';
SQL
}

everything() {
  cat <<SQL
CREATE DATABASE petstore_keys CHARACTER SET utf8mb4;
CREATE DATABASE petstore_stock CHARACTER SET utf8mb4;
CREATE USER 'petstore_owner'@'%' IDENTIFIED BY '$OWNER_DATABASE_PASSWORD';
CREATE USER 'petstore_gateway'@'%' IDENTIFIED BY '$GATEWAY_DATABASE_PASSWORD';
CREATE USER 'petstore_inventory'@'%' IDENTIFIED BY '$INVENTORY_DATABASE_PASSWORD';
CREATE USER 'petstore_operator'@'%' IDENTIFIED BY '$OPERATOR_DATABASE_PASSWORD';
GRANT ALL ON petstore_keys.* TO 'petstore_owner'@'%';
GRANT ALL ON petstore_stock.* TO 'petstore_owner'@'%';
SQL
  # Rights on a table that does not exist yet are only given together with CREATE.
  grants | sed 's/^GRANT /GRANT CREATE, /'
  grants | sed 's/^GRANT .* ON \(.*\) TO /REVOKE CREATE ON \1 FROM /'
}

if [ "${1:-}" = grants ]; then grants; else everything; fi | MYSQL_PWD="$MYSQL_ROOT_PASSWORD" mysql --user=root
