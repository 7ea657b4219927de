#!/bin/sh
# Does what the entrypoint of MySQL's image does: a first start without TCP, for the scripts of an empty volume.
set -eu
if [ ! -d /var/lib/mysql/mysql ]; then
  chown mysql /var/lib/mysql
  mysqld --no-defaults --initialize-insecure --user=mysql --datadir=/var/lib/mysql
  socket=/var/run/mysqld/mysqld.sock
  mysqld --no-defaults --user=mysql --datadir=/var/lib/mysql --skip-networking --mysqlx=OFF --socket=$socket &
  until mysqladmin --user=root --socket=$socket ping --silent > /dev/null 2>&1; do sleep 0.2; done
  mysql --user=root --socket=$socket <<SQL
ALTER USER 'root'@'localhost' IDENTIFIED BY '$MYSQL_ROOT_PASSWORD';
CREATE USER 'root'@'%' IDENTIFIED BY '$MYSQL_ROOT_PASSWORD';
GRANT ALL ON *.* TO 'root'@'%' WITH GRANT OPTION;
SQL
  for script in /docker-entrypoint-initdb.d/*.sh; do [ ! -e "$script" ] || "$script"; done
  MYSQL_PWD="$MYSQL_ROOT_PASSWORD" mysqladmin --user=root --socket=$socket shutdown
  wait
fi
exec mysqld --no-defaults --user=mysql --datadir=/var/lib/mysql --skip-name-resolve "$@"
