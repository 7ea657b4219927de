#!/bin/sh
# Creates the databases and their accounts. MySQL's image runs it once, on an empty volume. The tiers read and write
# rows; only the owner changes the schemas.
set -eu
MYSQL_PWD="$MYSQL_ROOT_PASSWORD" mysql --user=root <<SQL
CREATE DATABASE petstore_keys CHARACTER SET utf8mb4;
CREATE DATABASE petstore_stock CHARACTER SET utf8mb4;
CREATE USER 'petstore_owner'@'%' IDENTIFIED BY '$OWNER_DATABASE_PASSWORD';
CREATE USER 'petstore_gateway'@'%' IDENTIFIED BY '$GATEWAY_DATABASE_PASSWORD';
CREATE USER 'petstore_inventory'@'%' IDENTIFIED BY '$INVENTORY_DATABASE_PASSWORD';
GRANT ALL ON petstore_keys.* TO 'petstore_owner'@'%';
GRANT ALL ON petstore_stock.* TO 'petstore_owner'@'%';
GRANT SELECT, INSERT, UPDATE, DELETE ON petstore_keys.* TO 'petstore_gateway'@'%';
GRANT SELECT, INSERT, UPDATE, DELETE ON petstore_stock.* TO 'petstore_inventory'@'%';
SQL
