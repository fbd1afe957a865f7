SELECT ol_number, SUM(ol_quantity) AS sum_qty, SUM(ol_amount) AS sum_amount,
       AVG(ol_quantity) AS avg_qty, AVG(ol_amount) AS avg_amount, COUNT(*) AS count_order
FROM lines WHERE ol_delivery_d > '2014-07-01 00:00:00' GROUP BY ol_number ORDER BY ol_number
